"""Some keys of one view of one generation, written again as they are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc.catalogue import Catalogue
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from cdc.letters.words import REFUSED
from cdc.resolve.views import table_view
from cdc.stateful import StatefulView
from cdc.view import View
from operations.holding import holding
from operations.letters.judge import document_of
from operations.letters.openings import Openings
from operations.opened import Opened
from operations.records.newest import Newest, newest_records
from operations.run.flows import flow_spec
from operations.verify.repair.repair import (
    ROOM,
    joiner_of,
    made_of,
    root_of,
    with_fields,
    work_of,
    write_above,
    write_higher,
    write_made,
)
from operations.verify.repair.work import Refused, Repair
from sinks.contract import UNVERSIONED, Answer, Item
from sinks.contract import Outcome as Answered
from spark.disk.checkpoint import committed_offsets

# The key is written (True), its row is gone and so is the document (False), or why neither was done.
Outcome = bool | str


def written_again(
    openings: Openings, sink: str, number: int, name: str, letters: Mapping[bytes, DeadLetter]
) -> dict[bytes, Outcome]:
    """Write the keys of letters again.

    Args:
        openings: of the pipeline.
        sink: the sink's name.
        number: its generation.
        name: the view; empty for records of which none is known.
        letters: by record key; all of this view.

    Returns:
        how each ended.

    Raises:
        HeadwaterError: a server does not answer, or another process has taken the generation over.
    """
    build = openings.build(sink, number)
    view = next((view for view in build.views if view.name == name), None)
    rows = {key: letter for key, letter in letters.items() if letter.table is not None or view is None}
    outcomes = _rows(build, openings.catalogue, view, rows) if rows else {}
    documents = {key: letter for key, letter in letters.items() if key not in rows}
    if view is not None and documents:
        outcomes |= _documents(openings, build, view, documents)
    return outcomes


# -- documents ---------------------------------------------------------------------------------------------------------


def _documents(
    openings: Openings, build: Opened, view: View, letters: Mapping[bytes, DeadLetter]
) -> dict[bytes, Outcome]:
    if isinstance(view, StatefulView):
        way = f"mend `{view.said}`, then `headwater rebuild FILE {build.sink} --auto`"
        why = f"one of its events could not be taken: {way}"
        return dict.fromkeys(letters, why)
    by_id = {letter.key: letter for letter in letters.values()}
    refused = Refused("it was refused without a reason", limit=None)
    with holding(build, view) as held:
        work = work_of(build, openings.catalogue, held, openings.spark(build, view), refused)
        outcomes = _joined(work, by_id) if isinstance(view, JoinedView) else _plain(work, by_id)
    return {key: outcomes[letter.key] for key, letter in letters.items()}


def _plain(work: Repair, letters: Mapping[str, DeadLetter]) -> dict[str, Outcome]:
    """The newest record of each key, at its own position."""
    newest = newest_records(work.build.pipeline, work.flow.spec, work.view, list(letters))
    table, outcomes = work.view.table.qualified, dict[str, Outcome]()
    for key, letter in letters.items():
        if key not in newest:
            outcomes[key] = f"the log does not have this row: `headwater resnapshot FILE {table}`"
        elif not _as_new(newest[key], letter):
            outcomes[key] = (
                f"the log has nothing that can be read of this row since: `headwater resnapshot FILE {table}`"
            )
    newest = {key: found for key, found in newest.items() if key in letters and key not in outcomes}
    documents, failed = _rendered(work, newest)
    outcomes |= failed
    for key in failed:
        del newest[key]
    if work.build.warehouse:
        return outcomes | _table_rows(work, newest, documents)
    items = {key: Item(key, found.entry.version, documents[key]) for key, found in newest.items()}
    tops = {key: item.version | ROOM if item.version != UNVERSIONED else item.version for key, item in items.items()}
    refused = write_above(work.sink, work.view.name, items, tops)
    held = work.sink.get(work.view.name, [key for key in refused if documents[key] is None])
    # A newer one than the log had a moment ago is a change that has come since: it was taken. A delete that is refused
    # (of a key that no document can have) has nothing to delete.
    return outcomes | {
        key: False if documents[key] is None and key not in held else _answered(refused.get(key), documents[key])
        for key in items
    }


def _as_new(found: Newest, letter: DeadLetter) -> bool:
    """Whether a record is the one of the letter, or a later one: of an older one the sink has seen enough."""
    if found.entry.version == UNVERSIONED:
        return letter.offset is None or found.record.offset > letter.offset
    return found.entry.version >= letter.version


def _rendered(work: Repair, newest: Mapping[str, Newest]) -> tuple[dict[str, bytes | None], dict[str, Outcome]]:
    """Documents by id, None where there is to be none; and why, where Spark SQL still fails."""
    documents = {key: found.entry.document for key, found in newest.items()}
    failed: dict[str, str] = {}
    there = [found.record for found in newest.values() if found.entry.document is not None]
    if work.view.needs_spark and there:
        documents |= with_fields(work, there, failed)
    return documents, {key: why for key, why in failed.items() if key in newest}


def _table_rows(
    work: Repair, newest: Mapping[str, Newest], documents: Mapping[str, bytes | None]
) -> dict[str, Outcome]:
    from operations.verify.repair.warehouse import repair_rows

    held = work.holding.get(list(newest))
    kinds = {key: "extra" if documents[key] is None else "changed" for key in newest}
    kinds = {key: kind for key, kind in kinds.items() if kind == "changed" or key in held}
    if kinds:
        repair_rows(work, kinds, newest)
    return {key: work.refused.reasons.get(key, documents[key] is not None) for key in newest}


def _joined(work: Repair, letters: Mapping[str, DeadLetter]) -> dict[str, Outcome]:
    """What the row store makes of each root, under a version that is raised for it."""
    joiner, outcomes, failed = joiner_of(work), dict[str, Outcome](), dict[str, str]()
    roots = {root_of(joiner.view, key): key for key in letters}
    if work.build.warehouse:
        from operations.verify.repair.joined import repair_documents

        there = repair_documents(joiner, work, dict.fromkeys(letters, "changed"), roots, failed)
        kept = set(work.holding.get([key for key in letters if key not in there]))
        return {
            key: failed[key]
            if key in failed
            else there[key]
            if key in there
            else key in kept and work.refused.reasons.get(key, work.refused.default)
            for key in letters
        }
    entries = made_of(joiner, work, dict.fromkeys(roots, 0), failed)
    # Where Spark SQL fails again the sink has nothing already, and would take a delete for news.
    write_higher(joiner, work, write_made(work, [entry for entry in entries if entry.id not in failed]))
    made = {entry.id: entry.document for entry in entries}
    held = work.sink.get(work.view.name, [key for key in letters if made.get(key) is None])
    for key in letters:
        if key in failed:
            outcomes[key] = failed[key]
        elif key in made and made[key] is None and key not in held:
            outcomes[key] = False  # a delete that is refused, of a key that no document can have, has nothing to delete
        elif key in work.refused.reasons:
            outcomes[key] = work.refused.reasons[key]
        elif key in made:
            outcomes[key] = made[key] is not None
        elif key in held:
            outcomes[key] = f"the row store does not have this row: `headwater rebuild FILE {work.build.sink}`"
        else:
            outcomes[key] = False
    return outcomes


def _answered(answer: Answer | None, document: bytes | None) -> Outcome:
    if answer is not None and answer.outcome is Answered.REJECTED:
        return f"{REFUSED}{answer.reason}"
    return document is not None


# -- rows --------------------------------------------------------------------------------------------------------------


def _rows(
    build: Opened, catalogue: Catalogue, view: View | None, letters: Mapping[bytes, DeadLetter]
) -> dict[bytes, Outcome]:
    """A row has no document of its own to be written. What counts is whether the log has a later record of it, and
    whether that was applied."""
    outcomes: dict[bytes, Outcome] = {}
    for table in dict.fromkeys(letter.table for letter in letters.values()):
        mine = {key: letter for key, letter in letters.items() if letter.table == table}
        if table is None or table not in catalogue.tables:
            outcomes |= dict.fromkeys(mine, "nobody knows of which row it is: look at it, and `letters FILE drop` it")
            continue
        flows = [view] if view is not None else build.views_of(table)
        outcomes |= _of_table(build, catalogue, table, flows, mine)
    return outcomes


def _of_table(
    build: Opened, catalogue: Catalogue, table: str, views: Sequence[View], letters: Mapping[bytes, DeadLetter]
) -> dict[bytes, Outcome]:
    whole = table_view(build.pipeline, catalogue.tables[table])
    ids = {key: document_of(whole, letter) or letter.key for key, letter in letters.items()}
    spec = flow_spec(build.pipeline, build.sink, [whole], {})
    newest = newest_records(build.pipeline, spec, whole, list(dict.fromkeys(ids.values())))
    through = [committed_offsets(build.flow_folder(view) / "checkpoint")[1] for view in views]
    return {key: _row(newest.get(ids[key]), letter, table, through) for key, letter in letters.items()}


def _row(found: Newest | None, letter: DeadLetter, table: str, through: Sequence[Mapping[str, Any]]) -> Outcome:
    record = None if found is None else found.record
    if record is None or record.partition != letter.partition or record.offset <= (letter.offset or 0):
        return f"the log has no later record of this row of {table}: `headwater resnapshot FILE {table}` reads it again"
    if any(parts.get(record.topic, {}).get(record.partition, 0) <= record.offset for parts in through):
        return "a later record of this row is on its way: start `headwater run FILE`, or wait for it"
    assert found is not None
    return found.entry.document is not None
