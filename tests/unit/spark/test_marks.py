"""What commits say of their batches: known again whoever wrote it. Without Spark: Iceberg's table is played."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pyspark.sql import Row

from cdc.errors import KafkaUnavailable, ShapeUnknown
from cdc.view import View
from spark.reading import native, native_rows
from spark.reading.native import NativeReader
from spark.reading.spec import FlowSpec
from spark.warehouse import commits, merge
from spark.warehouse.commits import Applied, History
from spark.warehouse.counted import Counts
from spark.warehouse.marks import BATCH, OFFSETS, QUERY, READER, WHOLE, offsets_text, same_offsets
from spark.warehouse.merge import Merger
from tests.support.trees import table

UNSORTED = '{"t":{"10":4,"2":7},"a":{"0":1}}'  # as it was written once: what Spark's file had in this order
SORTED = offsets_text({topic: {int(part): at for part, at in of.items()} for topic, of in json.loads(UNSORTED).items()})


class Played:
    """A table of these commits, the newest last."""

    def __init__(self, *summaries: dict[str, str]) -> None:
        self._summaries = summaries

    def history(self) -> Any:
        """As Iceberg's: a list of Java's."""
        entries = [SimpleNamespace(snapshotId=lambda at=at: at) for at in range(len(self._summaries))]
        return SimpleNamespace(size=lambda: len(entries), get=entries.__getitem__)

    def currentSnapshot(self) -> Any:
        """As Iceberg's."""
        return self.snapshot(len(self._summaries) - 1) if self._summaries else None

    def snapshot(self, at: int) -> Any:
        """As Iceberg's."""
        return SimpleNamespace(summary=lambda: self._summaries[at])


def marks(number: int, offsets: str) -> dict[str, str]:
    """Of a batch of the query."""
    return {QUERY: "q", BATCH: str(number), OFFSETS: offsets}


def history(monkeypatch: pytest.MonkeyPatch, *summaries: dict[str, str]) -> History:
    """Of a table of these commits."""
    monkeypatch.setattr(commits, "loaded", lambda *_: Played(*summaries))
    return History(None, "t")  # type: ignore[arg-type]  # nothing is asked of Spark


def whole_in(found: History, asked: dict[str, str]) -> bool:
    """Whether the batch is there as a whole."""
    applied = found.applied(asked)
    return applied is not None and applied.whole


def test_the_same_offsets_are_one_text_however_they_come() -> None:
    assert SORTED == offsets_text({"a": {0: 1}, "t": {2: 7, 10: 4}}) == '{"a":{"0":1},"t":{"2":7,"10":4}}'


def test_a_batch_that_was_committed_before_offsets_were_sorted_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed, and killed before Spark's own commit; then upgraded: it is replayed, and must not be applied again."""
    assert UNSORTED != SORTED
    assert history(monkeypatch, marks(3, UNSORTED)).holds(marks(3, SORTED))


def test_of_other_offsets_or_another_number_it_is_another_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    table = history(monkeypatch, marks(2, SORTED), marks(3, offsets_text({"t": {0: 5}})))
    assert not table.holds(marks(3, SORTED))
    assert not table.holds(marks(4, SORTED))
    assert table.holds(marks(2, SORTED))


def test_a_commit_that_says_nothing_of_offsets_is_no_batch() -> None:
    assert not same_offsets(None, "{}")
    assert same_offsets("{}", "{}")


# -- a batch in two passes ---------------------------------------------------------------------------------------------


def test_a_batch_is_whole_if_its_newest_commit_says_so_or_a_later_batch_has_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = marks(3, SORTED)
    whole = asked | {WHOLE: "true"}
    for said, summaries in {
        (True, False): [asked],
        (True, True): [asked, whole],
        (False, False): [marks(2, SORTED) | {WHOLE: "true"}],
    }.items():
        found = history(monkeypatch, *summaries)
        assert (found.holds(asked), whole_in(found, asked)) == said
    followed = history(monkeypatch, asked, marks(4, SORTED))
    assert whole_in(followed, asked) and not whole_in(followed, marks(4, SORTED))
    # A checkpoint that was put back counts the number again, of other records: that one's word is not this one's.
    again = marks(3, offsets_text({"t": {0: 5}})) | {WHOLE: "true"}
    assert not whole_in(history(monkeypatch, asked, again), asked)


def test_a_first_pass_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = marks(3, SORTED)
    mine = asked | {READER: "mine"}
    assert history(monkeypatch, marks(2, SORTED), mine).applied(asked) == Applied(False, "mine")
    assert history(monkeypatch, mine, asked | {WHOLE: "true"}).applied(asked) == Applied(True, None)
    assert history(monkeypatch, mine).applied(marks(4, SORTED)) is None


def spec_of(view: View, registry: dict[str, str] | None = None) -> FlowSpec:
    return FlowSpec("lake", {view.name: view}, {"t": (view.name,)}, {"t": view.table}, {}, {}, registry=registry)


class Lake:
    """A merger's table, and what is asked of the passes that lead to it: only its commits are real.

    Attributes:
        commits: their summaries.
        decoded: what the codec was given.
        odd: how many records the next batches have that only the codec can read.
        fails: what the codec meets.
        registry: of the schemas of records that may be Avro.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits: list[dict[str, str]] = []
        self.decoded: list[Any] = []
        self.odd, self.fails = 0, cast(Exception | None, None)
        self.registry: dict[str, str] | None = None
        self.session, self.batch = MagicMock(), MagicMock(name="batch")
        said = dict[str, str]()
        self.session.conf.set.side_effect = said.__setitem__
        self.session.conf.unset.side_effect = lambda name: said.pop(name, None)
        self.session.sparkContext.getLocalProperty.return_value = "g"

        def commit(*_given: Any, **_named: Any) -> None:
            self.commits.append({name.removeprefix(merge.SAID): value for name, value in said.items()})

        source = MagicMock(sparkSession=self.session)
        source.drop.return_value.where.return_value.drop.return_value.writeTo.return_value.append = commit
        self.batch.sparkSession = self.session
        played: dict[str, Any] = {
            **dict.fromkeys(("F", "Observation", "entry_schema", "turn_done"), MagicMock()),
            "table_rows": lambda *_: source,
            "standing": lambda entries: entries,
            "_both": lambda *_: (),
            "odd_ones": lambda: (),
            "merge_changes": commit,
            "map_in_arrow": self.decode,
            "told": lambda _seen: {"records": 2, "odd": self.odd},
            "batch_offsets": lambda *_: {"t": {0: 9}},
            "insisting": lambda once: once(),
        }
        for name, value in played.items():
            monkeypatch.setattr(merge, name, value)
        monkeypatch.setattr(commits, "loaded", lambda *_: Played(*self.commits))

    def decode(self, records: Any, *_: Any) -> Any:
        """In the place of the codec's pass."""
        self.decoded.append(records)
        if self.fails is not None:
            raise self.fails
        return MagicMock()

    def run(self, folder: Path, of: View) -> Counts | None:
        """Apply the batch in a flow that is begun anew, with this table; what was counted."""
        (folder / "metadata").write_text(json.dumps({"id": "q"}))
        spec = spec_of(of, self.registry)
        merger = Merger(MagicMock(), spec, folder, MagicMock(), MagicMock())
        assert (merger._reader is None) == (of is ALONE or of.needs_spark)
        if merger._reader is not None:
            reader = MagicMock(fingerprint=merger._reader.fingerprint)
            reader.read.return_value.agg.return_value.collect.return_value = [Row(records=2, odd=self.odd)]
            merger._reader = reader
        merger(self.batch, 3)
        return merger.counts.get(3)


BEFORE = View.identity(table("orders", "id", id="int4", v="text"))
AFTER = View.identity(table("orders", "id", id="int4", v="text", note="text"))
ALONE = View.identity(table("orders", "id", id="int4", v="text", note="interval"))  # of a type that Spark does not read


@pytest.mark.parametrize("after", [AFTER, ALONE], ids=["read natively", "read by the codec"])
def test_a_batch_that_was_cut_between_its_passes_is_applied_as_a_whole_by_the_next_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: View
) -> None:
    """What was odd before ALTER TABLE is plain behind it, and was not among the plain records that were committed."""
    lake = Lake(monkeypatch)
    lake.odd, lake.fails = 1, ShapeUnknown("it has note besides", means="m", fix="f")
    with pytest.raises(ShapeUnknown):
        lake.run(tmp_path, BEFORE)
    (cut,) = lake.commits
    assert cut[BATCH] == "3" and WHOLE not in cut
    assert lake.decoded[0] is not lake.batch, "the keys that have odd ones"
    lake.fails = None
    lake.run(tmp_path, after)
    assert lake.decoded[1:] == [lake.batch]
    del cut[READER]
    assert lake.commits[1:] == [cut | {WHOLE: "true"}]
    lake.run(tmp_path, after)
    assert len(lake.decoded) == len(lake.commits) == 2, "now it is there"


def test_a_batch_that_was_cut_between_its_passes_goes_on_with_the_second_if_its_reader_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = Lake(monkeypatch)
    lake.odd, lake.fails = 1, OSError("killed")
    with pytest.raises(OSError, match="killed"):
        lake.run(tmp_path, BEFORE)
    lake.fails = None
    counts = lake.run(tmp_path, BEFORE)
    assert counts is not None and counts.records == 2, "of both passes"
    assert len(lake.decoded) == 2 and lake.batch not in lake.decoded, "the keys that have odd ones"
    assert [(WHOLE in said, READER in said) for said in lake.commits] == [(False, True), (True, False)]
    assert lake.run(tmp_path, BEFORE) is None
    assert len(lake.decoded) == len(lake.commits) == 2


def test_a_batch_is_not_committed_before_its_letters_are_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A commit says that the batch is whole: letters that came behind it were never sent by its repeat."""
    lake, order = Lake(monkeypatch), list[str]()
    away: list[Exception] = [KafkaUnavailable("no answer")]

    def send(_merger: Merger, _source: Any) -> None:
        if away:
            raise away.pop()
        order.append(f"letters after {len(lake.commits)} commits")

    monkeypatch.setattr(Merger, "_send_letters", send)
    monkeypatch.setattr(Counts, "of", lambda _found: Counts())
    monkeypatch.setattr(merge, "with_expressions", lambda *_: MagicMock())
    computed = replace(ALONE, fields={"twice": "v || v"})
    with pytest.raises(KafkaUnavailable):
        lake.run(tmp_path, computed)
    assert lake.commits == []
    lake.run(tmp_path, computed)
    assert order == ["letters after 0 commits"] and [WHOLE in said for said in lake.commits] == [True]


@pytest.mark.parametrize("after", [BEFORE, AFTER], ids=["the same reader", "another reader"])
def test_a_batch_without_odd_records_is_one_commit_and_one_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: View
) -> None:
    lake = Lake(monkeypatch)
    lake.run(tmp_path, BEFORE)
    assert len(lake.commits) == 1 and lake.decoded == []
    # Nobody could know in that commit that nothing would follow: a replay looks again.
    for _ in range(2):
        lake.run(tmp_path, after)
    assert (lake.decoded, len(lake.commits)) == (([], 1) if after is BEFORE else ([lake.batch], 2))


@pytest.mark.parametrize("avro", [False, True], ids=["of an earlier version", "of records that may be Avro"])
def test_a_first_pass_that_does_not_say_whose_it_is_is_applied_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, avro: bool
) -> None:
    """A registry that was away made records odd that are plain when it answers again."""
    lake = Lake(monkeypatch)
    lake.registry = {"url": "http://h"} if avro else None
    lake.run(tmp_path, BEFORE)
    assert (READER in lake.commits[0]) is not avro
    lake.commits[0].pop(READER, None)
    lake.run(tmp_path, BEFORE)
    assert lake.decoded == [lake.batch]


def test_a_fingerprint_tells_readers_apart_to_which_other_records_are_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(view: View, registry: dict[str, str] | None = None) -> str | None:
        reader = NativeReader.of(spec_of(view, registry))
        assert reader is not None
        return reader.fingerprint(MagicMock())

    mine = of(BEFORE)
    assert mine is not None and mine == of(View.identity(table("orders", "id", id="int4", v="text")))
    retyped = View.identity(table("orders", "id", id="int4", v="varchar"))
    chosen = View("orders", BEFORE.table, ("id",), (("id", "id"),))
    assert len({mine, *map(of, (AFTER, retyped, chosen))}) == 4
    assert of(BEFORE, {"url": "http://h"}) is None
    with monkeypatch.context() as without:
        without.setattr(native_rows, "_reader", lambda *_: None)
        assert of(BEFORE) != mine, "our jar reads floats that Spark does not"
    monkeypatch.setattr(native, "version", lambda _name: "next")
    assert of(BEFORE) != mine


def test_a_batch_in_two_passes_is_whole_with_the_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lake = Lake(monkeypatch)
    lake.odd = 1
    for _ in range(2):
        lake.run(tmp_path, BEFORE)
    assert [WHOLE in said for said in lake.commits] == [False, True]
    assert len(lake.decoded) == 1


ODD_ONES = {"odd": 3, "which": 7}


@pytest.mark.parametrize(
    ("before", "all_of_them"),
    [(ODD_ONES, False), ({"odd": 4, "which": 7}, True), ({"odd": 3, "which": 8}, True), ({}, True)],
)
def test_records_that_are_plain_now_and_were_odd_before_are_read_by_the_codec(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, int], all_of_them: bool
) -> None:
    """Two workers ask a registry, which is away for one of them: of two looks each may find other records odd."""
    records, seen = MagicMock(), MagicMock()
    held = seen.where.return_value.select.return_value.localCheckpoint.return_value
    held.agg.return_value.collect.return_value = [Row(**ODD_ONES)]
    monkeypatch.setattr(NativeReader, "read", lambda *_: seen)
    monkeypatch.setattr(native, "F", MagicMock())
    view: Any = None
    raw: Any = None
    assert (NativeReader(view, raw, repeats=False).of_odd_keys(records, before) is records) is all_of_them
    assert NativeReader(view, raw).of_odd_keys(records, before) is not records, "JSON is odd or it is not"
