"""Erasure without a server: where a view shows a row, what is put back after a kill, what files still hold."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cdc.errors import ConfigError, StateError, TagsHold
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline
from cdc.view import View
from console.cli.main import cli
from operations.erase.eraser import Eraser, Options
from operations.erase.letters import Letters
from operations.erase.note import Note
from operations.erase.places import Place, settled
from operations.erase.readers import behind
from operations.erase.shown import Shown, places_of, shows
from operations.erase.subject import Subject
from operations.erase.tables import Held
from operations.erase.warehouse import erase_tables, refuse_tags
from sinks.iceberg.remains import Remains, remains
from spark.disk.status import FlowStatus
from tests.support.disks import batches, needles
from tests.support.erase_cases import LINES, PERSONS, build, joined, pipeline, subject

# -- where a view shows a row ------------------------------------------------------------------------------------------


def test_where_a_view_shows_a_row() -> None:
    plain = View("p", PERSONS, ("id",), (("id", "number"), ("name", "name")))
    assert places_of(plain, "public.persons") == [Shown((), ("number",))]
    assert places_of(plain, "public.lines") == []
    assert places_of(joined((("id", "no"), ("name", "name"))), "public.persons") == [Shown(("who",), ("no",))]
    assert places_of(joined((("id", "no"),)), "public.lines") == [Shown((), ("id", "line"))]


def test_of_a_row_whose_key_is_not_shown_nobody_knows() -> None:
    assert places_of(joined((("name", "name"),)), "public.persons") == [Shown(("who",), None)]
    assert places_of(joined((("name", "name"),), value="name"), "public.persons") == [Shown(("who",), None)]


@pytest.mark.parametrize(
    ("document", "there"),
    [
        ({"id": 1, "who": {"no": 7, "name": "Ann"}}, True),
        ({"id": 7, "who": {"no": 1, "name": "7"}}, False),
        ({"id": 7, "who": None}, False),
        ({"id": 7}, False),
    ],
)
def test_whether_a_document_shows_a_row(document: Any, there: bool) -> None:
    assert shows(document, [Shown(("who",), ("no",))], "7") is there
    assert shows(document, [Shown(("who",), None)], "7"), "it may"


def test_rows_in_an_array_of_documents() -> None:
    document = {"orders": [{"lines": [{"id": 1, "line": 2}]}, {"lines": []}]}
    places = [Shown(("orders", "lines"), ("id", "line"))]
    assert shows(document, places, "1|2") and not shows(document, places, "2|1")


# -- what a table's files hold -----------------------------------------------------------------------------------------


class _Files:
    """What ``remains`` asks of pyiceberg: files of one snapshot after the other, and where they are."""

    def __init__(self, folder: Path, snapshots: dict[int, list[str]], refs: dict[str, tuple[int, str]]) -> None:
        self.folder = folder
        self.metadata = SimpleNamespace(snapshots=[self._snapshot(n, files) for n, files in snapshots.items()])
        self.io = SimpleNamespace(new_input=lambda path: SimpleNamespace(open=lambda: (folder / path).open("rb")))
        self._refs = refs

    @staticmethod
    def _snapshot(number: int, files: list[str]) -> Any:
        from pyiceberg.manifest import ManifestContent

        entries = [SimpleNamespace(data_file=SimpleNamespace(file_path=file)) for file in files]
        manifest = SimpleNamespace(
            content=ManifestContent.DATA,
            manifest_path=f"m{number}",
            fetch_manifest_entry=lambda _io, discard_deleted: entries,
        )
        return SimpleNamespace(snapshot_id=number, manifests=lambda _io: [manifest])

    def schema(self) -> Any:
        fields = [SimpleNamespace(name="id", field_id=1), SimpleNamespace(name="who", field_id=2)]
        return SimpleNamespace(fields=fields)

    def refs(self) -> Any:
        return {
            name: SimpleNamespace(snapshot_id=number, snapshot_ref_type=kind)
            for name, (number, kind) in self._refs.items()
        }


def write(path: Path, ids: list[int], who: list[Any], name: str = "id") -> None:
    """A data file, whose key's column may have had another name."""
    person = pa.struct([("no", pa.int32()), ("name", pa.string())])
    schema = pa.schema(
        [
            pa.field(name, pa.int32(), metadata={"PARQUET:field_id": "1"}),
            pa.field("who", pa.list_(person), metadata={"PARQUET:field_id": "2"}),
        ]
    )
    pq.write_table(pa.table([pa.array(ids, pa.int32()), pa.array(who, pa.list_(person))], schema), path)


@pytest.fixture
def lake(tmp_path: Path) -> _Files:
    write(tmp_path / "a.parquet", [1, 7, 7], [None, [], [{"no": 9, "name": "x"}]], name="former")
    write(tmp_path / "b.parquet", [2], [[{"no": 1, "name": "x"}, None]])
    refs = {"main": (2, "branch"), "march": (1, "tag"), "headwater": (1, "branch"), "mine": (1, "branch")}
    return _Files(tmp_path, {1: ["a.parquet"], 2: ["b.parquet"]}, refs)


def test_rows_are_found_in_files_of_older_snapshots_whatever_their_columns_were_called(lake: _Files) -> None:
    found = remains(cast(Any, lake), [((), ("id",))], "7")
    assert (found.rows, found.snapshots) == ({"a.parquet": 2}, 1)
    assert (found.tags, found.branches) == (("march",), ("mine",))
    assert remains(cast(Any, lake), [((), ("id",))], "8") == Remains()


def test_rows_are_found_within_arrays(lake: _Files) -> None:
    assert remains(cast(Any, lake), [(("who",), ("no",))], "9").rows == {"a.parquet": 1}
    assert remains(cast(Any, lake), [(("who",), ("no",))], "7").rows == {}


def test_tags_are_refused_unless_they_may_be_moved_and_branches_always() -> None:
    held = [Held("lake", None, "", "n.t", Remains({"f": 1}, set(), 1, ("march",)))]
    refuse_tags(held, move=True)
    with pytest.raises(TagsHold, match=r"march of n\.t"):
        refuse_tags(held, move=False)
    held[0].there.branches = ("mine",)
    with pytest.raises(TagsHold, match="branches"):
        refuse_tags(held, move=True)


@pytest.mark.parametrize("move", [True, False])
def test_a_tag_that_was_set_while_it_worked_is_not_moved_unasked(move: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked for once, before topics were compacted and everybody had read: minutes."""
    held, rewritten, paused = [Held("lake", None, "", "n.t", Remains({"f": 1}))], list[Any](), list[str]()

    @contextmanager
    def alone(_subject: object, sink: str) -> Iterator[None]:
        held[0].there.tags = ("march",)  # `as-of --tag` asks nobody
        paused.append(sink)
        yield
        paused.remove(sink)

    def erased(_subject: object, tables: list[Held], _spark: object) -> set[str]:
        rewritten.extend(tables)
        return set()

    spark = SimpleNamespace(stop=lambda: paused.append("stopped"))
    for name, instead in {
        "warehouses": lambda *_: ["lake"],
        "open_spark": lambda *_: spark,
        "tables_of": lambda *_: held,
        "_alone": alone,
        "_erase": erased,
    }.items():
        monkeypatch.setattr(f"operations.erase.warehouse.{name}", instead)
    subject: Any = SimpleNamespace(pipeline=None, say=lambda _line: None)
    words = r"march of n\.t[\s\S]* it was set meanwhile"
    with nullcontext() if move else pytest.raises(TagsHold) as refused:
        erase_tables(subject, [], move_tags=move)
    assert rewritten == (held if move else [])
    assert refused is None or re.search(words, str(refused.value))
    assert "stopped" in paused


# -- what is put back --------------------------------------------------------------------------------------------------


def test_settings_are_written_down_before_they_are_changed_and_put_back(tmp_path: Path) -> None:
    note, done = Note(pipeline(tmp_path)), dict[str, Any]()
    with note.changed("topics", "t", {"segment.ms": "9", "other": None}, done.__setitem__):
        assert Note(pipeline(tmp_path)).read() == {"topics": {"t": {"segment.ms": "9", "other": None}}}
        assert not done
    assert done == {"t": {"segment.ms": "9", "other": None}} and note.read() == {}
    assert not (tmp_path / "p" / "erasing.json").exists()


def test_after_a_kill_the_next_one_puts_back_what_was_before(tmp_path: Path) -> None:
    note, done = Note(pipeline(tmp_path)), dict[str, Any]()

    def killed(_name: str, _settings: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), note.changed("topics", "t", {"segment.ms": "9"}, killed):
        pass
    with note.changed("topics", "t", {"segment.ms": "1"}, done.__setitem__):  # as they were left
        pass
    assert done == {"t": {"segment.ms": "9"}}
    with pytest.raises(KeyboardInterrupt), note.changed("indices", "i", {"a": None}, killed):
        pass
    note.put_back("topics", done.__setitem__)
    assert note.read() == {"indices": {"i": {"a": None}}}
    note.put_back("indices", done.__setitem__)
    assert done["i"] == {"a": None} and note.read() == {}


def test_what_a_killed_one_was_at_is_known_until_it_has_ended(tmp_path: Path) -> None:
    note = Note(pipeline(tmp_path))
    assert note.begin("tables", "lake: n.t", {"since": "1"}) is None
    assert note.begin("tables", "lake: n.t", {"since": "2"}) == {"since": "1"}
    assert Note(pipeline(tmp_path)).begin("tables", "lake: n.t", {"since": "3"}) == {"since": "1"}
    note.end("tables", "lake: n.t")
    assert note.begin("tables", "lake: n.t", {"since": "4"}) is None


def test_a_note_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "erasing.json").write_text("{")
    with pytest.raises(StateError, match="can't be read"):
        Note(pipeline(tmp_path)).read()


# -- what is said ------------------------------------------------------------------------------------------------------


def test_what_is_left_of_what_was_found() -> None:
    before = [Place("topic", "t", found=3), Place("index", "i", "search", 1, hidden=2), Place("history", "h", found=1)]
    after = [Place("topic", "t"), Place("index", "i", "search", 1, hidden=1), Place("cache", "c", "cache", 1, found=1)]
    found = {place.name: place for place in settled(before, after)}
    assert [place.name for place in found.values() if place.empty] == ["t", "h"]
    assert (found["i"].hidden, found["i"].hidden_left, found["c"].left) == (2, 1, 1)
    assert Place("backup", "b", found=3).empty, "it is not ours to empty"


def test_readers_are_waited_for_up_to_all_that_is_written(tmp_path: Path) -> None:
    """What a reader of committed records sees ends earlier while a transaction's marker is missing."""
    one, asked = subject(tmp_path), list[bool]()

    def ends(counts: dict[str, int], *, written: bool = False) -> dict[str, dict[int, int]]:
        asked.append(written)
        return {topic: dict.fromkeys(range(partitions), 9) for topic, partitions in counts.items()}

    eraser = Eraser(one, Options())
    topics = {one.topic: SimpleNamespace(name=one.topic, partitions=2)}
    eraser._kafka = cast(
        Any, SimpleNamespace(describe=lambda names: {n: topics[n] for n in names if n in topics}, ends=ends)
    )
    assert eraser._ends() == {one.topic: {0: 9, 1: 9}} and asked == [True]
    topics.clear()
    assert eraser._ends() == {one.topic: {}}


def test_a_certificate_does_not_name_the_key_unless_it_is_asked_to(tmp_path: Path) -> None:
    one = subject(tmp_path)
    places = [Place("topic", "t", found=1, left=0, hidden_left=0)]
    report = Eraser(one, Options(act=True))._told(places, [], [])
    assert report["erased"] and report["key"] is None and one.key not in json.dumps(report)
    assert "4711" not in repr(one)
    assert Eraser(one, Options(act=True, name_key=True))._told(places, [], [])["key"] == "4711"
    assert not Eraser(one, Options())._told(places, [], [])["erased"]


@pytest.mark.parametrize(("key", "what"), [("x", "is int4"), ("1|2", "is int4")])
def test_a_key_that_no_row_can_have_is_refused(key: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = cast(Pipeline, SimpleNamespace(source=SimpleNamespace(outbox=None), views={}))
    catalogue = SimpleNamespace(tables={"public.persons": PERSONS, "public.lines": LINES}, gone={})
    monkeypatch.setattr("operations.erase.subject.source_catalogue", lambda _: catalogue)
    row = SimpleNamespace(fetchone=lambda: ("7", True))
    asked = nullcontext(SimpleNamespace(execute=lambda _: row))
    monkeypatch.setattr("operations.erase.spelling.snapshot", lambda _: asked)
    with pytest.raises(ConfigError, match=what):
        Subject.of(pipeline, "persons", key, print)
    with pytest.raises(ConfigError, match="has 2 parts, 1 were given"):
        Subject.of(pipeline, "public.lines", "7", print)
    with pytest.raises(ConfigError, match="no table nobody"):
        Subject.of(pipeline, "nobody", "7", print)
    assert Subject.of(pipeline, "lines", "7|7", print).name == "public.lines"


def test_a_certificate_goes_with_yes() -> None:
    result = CliRunner().invoke(cli, ["erase", "p.yaml", "persons", "1", "--certificate", "c.json"])
    assert result.exit_code != 0 and "goes with --yes" in result.output


# -- who must have read, and which letters hold a row ------------------------------------------------------------------


def test_a_generation_that_nobody_runs_is_named_with_the_way_to_remove_it(tmp_path: Path) -> None:
    one, goal = build(tmp_path, View.identity(PERSONS)), {"p.public.persons": {0: 5}}
    [(who, fix, coming)] = behind(subject(tmp_path), [one], goal)
    assert who == "sink cache, generation 2, flow main, which nobody runs" and not coming
    assert "headwater retire FILE cache --generation 2" in fix
    [(_, living, _)] = behind(subject(tmp_path), [build(tmp_path, View.identity(PERSONS), "living")], goal)
    assert "retire" not in living and "headwater run" in living
    told = one.opened.generation.flow_folder("main") / "applied.json"
    told.parent.mkdir(parents=True)
    told.write_text(json.dumps({"offsets": {"p.public.persons": {"0": 5}}}))
    assert behind(subject(tmp_path), [one], goal) == []


def test_a_half_filled_generation_is_named_with_the_rebuild_that_goes_on_with_it(tmp_path: Path) -> None:
    one = build(tmp_path, View.identity(PERSONS), "filling")
    [(_, fix, coming)] = behind(subject(tmp_path), [one], {"p.public.persons": {0: 5}})
    assert "headwater rebuild FILE cache" in fix and "headwater run" not in fix and not coming
    assert "headwater retire FILE cache --generation 2" in fix


def test_one_who_runs_and_is_seconds_behind_is_waited_for_and_no_refusal(tmp_path: Path) -> None:
    one = build(tmp_path, View.identity(PERSONS), "living")
    one.opened.generation.lease.take()
    try:
        [late] = behind(subject(tmp_path), [one], {"p.public.persons": {0: 5}})
    finally:
        one.opened.generation.lease.release()
    assert late.coming and late.who == "sink cache, generation 2, flow main"


@pytest.mark.parametrize(
    ("stage", "way"), [("previous", "headwater retire FILE cache"), ("living", "headwater status")]
)
def test_a_flow_that_has_failed_is_not_waited_for(tmp_path: Path, stage: str, way: str) -> None:
    """`run` was alive and its flow had failed: "let `headwater run FILE` run" was no help."""
    one = build(tmp_path, View.identity(PERSONS), stage)
    status = FlowStatus("main", "failed", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, "no column", [], time.time())
    folder = one.opened.generation.flow_folder("main")
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(asdict(status)))
    one.opened.generation.lease.take()
    try:
        [(who, fix, coming)] = behind(subject(tmp_path), [one], {"p.public.persons": {0: 5}})
    finally:
        one.opened.generation.lease.release()
    assert who == "sink cache, generation 2, flow main, which has failed" and not coming
    assert way in fix and "headwater run" not in fix


@pytest.mark.parametrize(
    ("letter", "own", "holds"),
    [
        (DeadLetter("cache", "persons", "7", 1, "no", b"{}"), True, True),
        (DeadLetter("cache", "persons", "8", 1, "no", b"{}"), False, False),
        (DeadLetter("cache", "", '{"id":7}', 1, "no", b"?", table="public.persons"), True, True),
        (DeadLetter("cache", "card", "7", 1, "no", b"?", table="public.lines"), False, False),
        (DeadLetter("cache", "card", "1|2", 1, "no", b'{"who": {"no": 7, "name": "Ann"}}'), False, True),
        (DeadLetter("cache", "card", "1|2", 1, "no", b'{"who": {"no": 8, "name": "Eve"}}'), False, False),
        (DeadLetter("cache", "card", "1|2", 1, "no", b'{"who": {"no": 8, "na', document_bytes=99), False, True),
        (DeadLetter("cache", "card", "1|2", 1, "no"), False, False),
        (DeadLetter("other", "card", "1|2", 1, "no", b'{"who": {"no": 7}}'), False, False),
    ],
)
def test_which_letters_hold_a_row(tmp_path: Path, letter: DeadLetter, own: bool, holds: bool) -> None:
    both = [build(tmp_path, one) for one in (View.identity(PERSONS), joined((("id", "no"), ("name", "name"))))]
    letters = Letters(subject(tmp_path, "7"), both)
    assert (letters.own(letter), letters.holds(letter)) == (own, holds)


# -- the test's own search ---------------------------------------------------------------------------------------------


def test_the_search_looks_into_compressed_batches() -> None:
    body = b"0123456789" * 9 + b"a value that is looked for"
    packed = pa.BufferOutputStream()
    with pa.output_stream(packed, compression="lz4") as out:
        out.write(body)
    records = packed.getvalue().to_pybytes()
    header = bytearray(61)
    header[8:12] = (len(records) + 49).to_bytes(4, "big")
    header[16], header[22] = 2, 3
    [found] = batches(bytes(header) + records)
    assert found == body
    assert needles("0123456789abcdefghijklmnopqrs") == [b"0123456789abcd", b"efghijklmnopqr"]
