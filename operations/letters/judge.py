"""Whether letters stand: asked of what their generation holds now.

A later good write of a key has a greater version than its letter, and a delete leaves its version with the sink. A row
of a joined view's tables has the offset of its change in the row store. So nothing is remembered for this, and nothing
on the way of a change has to look for letters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from cdc.errors import DecodeError, HeadwaterError, StateError
from cdc.join.rows import read
from cdc.join.view import JoinedView
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline
from cdc.records.change import Change, Op
from cdc.stateful import StatefulView
from cdc.view import View
from operations.holding import holding
from operations.opened import Opened
from operations.state.folder import register_of
from sinks.contract import Target
from sinks.rowstore import key_names
from sinks.rowstore.redis import RedisRowStore

# Somebody waits for the answer: a row store that does not give one is told, not waited for.
PATIENCE_SECONDS = 5.0
# Keys asked for at once.
PAGE = 1_000

OpenBuild = Callable[[str, int], Opened]
Letters = Mapping[bytes, DeadLetter]


@dataclass
class Judgement:
    """What was found out.

    Attributes:
        healed: record keys of letters that stand no more.
        unasked: sinks that could not be asked about all of theirs, and why: these letters are taken to stand.
    """

    healed: set[bytes] = field(default_factory=set)
    unasked: dict[str, str] = field(default_factory=dict)


def judge(pipeline: Pipeline, letters: Mapping[bytes, Logged], open_build: OpenBuild) -> Judgement:
    """Look which of some letters are healed.

    Args:
        pipeline: the loaded file; letters of sinks that it does not have are left alone.
        letters: by record key.
        open_build: opens a sink's generation to look at it.

    Raises:
        StateError: a sink's register says nothing that can be (terminal).
    """
    found = Judgement()
    by_sink: dict[str, dict[bytes, DeadLetter]] = defaultdict(dict)
    for key, logged in letters.items():
        if logged.letter.sink in pipeline.sinks:
            by_sink[logged.letter.sink][key] = logged.letter
    for sink, mine in by_sink.items():
        register = register_of(pipeline, sink)
        living, there = register.living(), {entry.number for entry in register.entries()}
        by_number: dict[int, dict[bytes, DeadLetter]] = defaultdict(dict)
        for key, letter in mine.items():
            by_number[living if letter.generation is None else letter.generation][key] = letter
        for number, some in by_number.items():
            if number not in there:
                found.healed |= some.keys()  # it was retired, and its documents with it
                continue
            try:
                found.healed |= _healed(open_build(sink, number), some)
            except HeadwaterError as error:
                found.unasked[sink] = error.what
    return found


def _healed(build: Opened, letters: Letters) -> set[bytes]:
    healed: set[bytes] = set()
    views = {view.name: view for view in build.views}
    by_view: dict[str, dict[bytes, DeadLetter]] = defaultdict(dict)
    for key, letter in letters.items():
        by_view[letter.view][key] = letter
    for name, some in by_view.items():
        view = views.get(name)
        rows = {key: letter for key, letter in some.items() if letter.table is not None}
        documents = {key: letter for key, letter in some.items() if letter.table is None and not letter.keyless}
        if view is not None and documents:
            with holding(build, view) as held:
                healed |= _documents(held.target, view.name, documents)
        if isinstance(view, JoinedView) and rows:
            healed |= _rows(build, view, rows)
        elif name == "" and rows:
            healed |= _records(build, rows)
    return healed


def _documents(target: Target, view: str, letters: Letters) -> set[bytes]:
    """Those whose key was written or deleted since, and deletes of what is not there."""
    healed = set()
    for page in _pages(letters):
        versions = target.versions(view, list({letter.key for letter in page.values()}))
        deletes = [letter.key for letter in page.values() if letter.deleting]
        held = target.get(view, deletes) if deletes else {}
        for key, letter in page.items():
            vain = letter.deleting and letter.key not in held
            if vain or (letter.version > 0 and versions.get(letter.key, -1) > letter.version):
                healed.add(key)
    return healed


def _records(build: Opened, letters: Letters) -> set[bytes]:
    """Of records that could not be decoded: those whose row a later record has brought to a document; no later one
    brings back an event."""
    healed: set[bytes] = set()
    for view in build.views:
        if isinstance(view, JoinedView | StatefulView):
            continue
        mine = {}
        for key, letter in letters.items():
            identity = document_of(view, letter) if letter.table == view.table.qualified else None
            if identity is not None and letter.version > 0:
                mine[key] = (identity, letter.version)
        if mine:
            with holding(build, view) as held:
                versions = held.target.versions(view.name, list({identity for identity, _ in mine.values()}))
            healed |= {key for key, (identity, version) in mine.items() if versions.get(identity, -1) > version}
    return healed


def document_of(view: View, letter: DeadLetter) -> str | None:
    """The document of a view that a record's key names, from a letter about that record; None if it names none."""
    try:
        key = orjson.loads(letter.key)
        if not isinstance(key, dict):
            return None
        return view.document_id(Change(view.table.qualified, Op.TOMBSTONE, key, None, 0, letter.topic or "", 0, 0, 0))
    except (ValueError, DecodeError):
        return None


def _rows(build: Opened, view: JoinedView, letters: Letters) -> set[bytes]:
    """Those whose row has come in a later record of the same partition."""
    patience = {"give_up_seconds": PATIENCE_SECONDS, "request_timeout_seconds": PATIENCE_SECONDS}
    healed, tables = set(), view.layout.tables
    store = RedisRowStore(build.row_store(view, **patience))
    try:
        for page in _pages({key: letter for key, letter in letters.items() if letter.table in tables}):
            names = [key_names.row(tables[str(letter.table)].number, letter.key) for letter in page.values()]
            for (key, letter), value in zip(page.items(), store.get(names), strict=True):
                if value is not None and _later(value, letter):
                    healed.add(key)
    finally:
        store.close()
    return healed


def _later(value: bytes, letter: DeadLetter) -> bool:
    try:
        stamp = read(value).stamp
    except StateError:
        return False
    return letter.offset is not None and stamp.partition == letter.partition and stamp.offset > letter.offset


def _pages(letters: Letters) -> Iterable[Letters]:
    keys: Sequence[bytes] = list(letters)
    for start in range(0, len(keys), PAGE):
        yield {key: letters[key] for key in keys[start : start + PAGE]}
