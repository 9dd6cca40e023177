"""``headwater explain`` without a server: the walk over a row store, differences, names, and what is printed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.join.incoming import RowMaker
from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.keys import alike
from cdc.pipeline import Pipeline, loads
from cdc.records.change import Change, Op
from connectors.wal.budget import Sample, judge
from connectors.wal.pins import Pin
from console.cli.explain import show
from console.cli.main import cli
from operations.explain.differences import Difference, differences, without
from operations.explain.report import _position, find_view
from operations.status.sinks import _sink
from operations.status.source import SourceState, line, warning
from sinks.rowstore.memory.store import MemoryStore
from spark.disk.status import FlowStatus, state_of
from spark.join.engine import Joiner
from spark.join.explain import explain, row_id
from spark.join.task import Task

# -- a small world -----------------------------------------------------------------------------------------------------


def table(called: str, key: str, /, **columns: str) -> Table:
    return Table("public", called, tuple(Column(n, kind, kind) for n, kind in columns.items()), tuple(key.split()))


AUTHORS = table("authors", "id", id="int4", name="text", boss="int4")
BOOKS = table("books", "id", id="int4", author="int4", pages="int4")


def node(of: Table, name: str, kind: Any, on: Sequence[tuple[str, str]] = (), **rest: Any) -> Node:
    return Node(name, kind, of, tuple(on), tuple((c.name, c.name) for c in of.columns), **rest)


def view() -> JoinedView:
    on = (("id", "author"),)
    root = node(
        AUTHORS,
        "card",
        "root",
        refs=(node(AUTHORS, "chief", "ref", (("boss", "id"),)),),
        children=(node(BOOKS, "books", "child", on, limit=1),),
        aggregates=(
            Aggregate("total", BOOKS, on, "count"),
            Aggregate("longest", BOOKS, on, "max", value="pages"),
            Aggregate("twice", BOOKS, on, "sum", value="2 * pages"),
        ),
    )
    return JoinedView("card", AUTHORS, ("id",), root.columns, root=root)


class Kept(MemoryStore):
    """With ``get`` of a version, as a server has it."""

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return [str(value).encode() if isinstance(value, int) else value for value in super().get(keys)]


@pytest.fixture
def store() -> Kept:
    """Author 1 has a chief 2 and three books, of which one is deleted; author 3's chief never came."""
    made, joined = Kept(), view()
    joiner = Joiner(joined, made)
    makers = {name: RowMaker(layout) for name, layout in joined.layout.tables.items()}
    rows: list[tuple[Table, tuple[Any, ...] | int]] = [
        (AUTHORS, (1, "Ada", 2)),
        (AUTHORS, (2, "Bo", None)),
        (AUTHORS, (3, "Cy", 99)),
        *((BOOKS, (n, 1, n * 100)) for n in (10, 11, 12)),
        (BOOKS, 12),
        (AUTHORS, 2),
    ]
    for offset, (of, row) in enumerate(rows):
        after = dict(zip(of.by_name, row, strict=True)) if isinstance(row, tuple) else None
        key, op = {"id": row[0] if isinstance(row, tuple) else row}, Op.CREATE if after else Op.DELETE
        change = Change(of.qualified, op, key, after, 1000 + offset, f"t.{of.qualified}", 3, offset, 0)
        computed = [None, None, 2 * after["pages"]] if after and of is BOOKS else [None] * 3
        incoming = makers[of.qualified].make(change, computed)
        task = Task(offset, offset)
        for _ in joiner.process([incoming], task, _refuse):
            pass
        made.end(offset)
    return made


def _refuse(*_: object) -> None:
    raise AssertionError("nothing is to be refused")


# -- the walk ----------------------------------------------------------------------------------------------------------


def test_rows_carry_the_stamps_of_the_changes_that_wrote_them(store: Kept) -> None:
    found = explain(view(), store, "1")
    rows = [(row.path, row.key, row.state, row.stamp and tuple(row.stamp)) for row in found.rows]
    assert rows == [
        ("card", "1", "shown", (1000, 0, 3)),
        ("card.chief", "2", "deleted", (1007, 7, 3)),
        ("card.books[0]", "10", "shown", (1003, 3, 3)),
    ]
    assert found.cut == {"card.books": 1}
    assert found.version == store.servers.of("v:1")["v:1"]
    assert found.waiting == 0
    store.defer({"1": 5, "2": 6})
    assert explain(view(), store, "1").waiting == 2
    shown = json.loads(found.document or b"")
    assert (shown["chief"], [book["id"] for book in shown["books"]]) == (None, [10])


def test_a_second_one_is_named_and_a_hidden_row_is_listed(store: Kept) -> None:
    books = node(BOOKS, "book", "child", (("id", "author"),), one=True)
    # The store holds the same for it: what is shown of rows is no question of how they are kept.
    tree = replace(view().tree, children=(replace(books, name="books"),))
    found = explain(replace(view(), root=tree), store, "1")
    assert [(row.path, row.key, row.state) for row in found.rows] == [
        ("card", "1", "shown"),
        ("card.chief", "2", "deleted"),
        ("card.books", "11", "shown"),
        ("card.books", "10", "second"),
    ]
    assert found.cut == {}
    assert json.loads(found.document or b"")["books"]["id"] == 11
    chief = replace(tree.refs[0], hide=True, columns=(), refs=(node(AUTHORS, "above", "ref", (("boss", "id"),)),))
    total = Aggregate("deep", BOOKS, (("id", "author"),), "sum", value="2 * pages")
    above = replace(chief.refs[0], aggregates=(total,))
    hidden = explain(replace(view(), root=replace(tree, refs=(replace(chief, refs=(above,)),))), store, "3")
    assert hidden.unknown == {("twice",), ("above", "deep")}
    shown = json.loads(hidden.document or b"")
    assert "chief" not in shown
    assert shown["above"] is None


def test_a_row_that_never_came_is_missing(store: Kept) -> None:
    assert [(row.path, row.key, row.state, row.stamp) for row in explain(view(), store, "3").rows][1:] == [
        ("card.chief", "99", "missing", None)
    ]


def test_an_index_that_is_a_step_behind_is_shown(store: Kept) -> None:
    (held,) = store.servers.nodes
    index = next(name for name, of in held.items() if name.startswith("i") and "10" in of)
    held[index.replace(":1", ":3")] = {"10", "77"}
    extra = {row.key: row.state for row in explain(view(), store, "3").rows if row.path == "card.books"}
    assert extra == {"10": "elsewhere", "77": "missing"}


def test_aggregates_have_their_counts_and_types_that_only_spark_knows_are_not_guessed(store: Kept) -> None:
    found = explain(view(), store, "1")
    assert [(t.path, t.value, t.count, t.known) for t in found.totals] == [
        ("card.total", 2, 2, True),
        ("card.longest", 1100, None, True),
        ("card.twice", None, 2, False),
    ]
    assert found.unknown == {("twice",)}
    analysed = view()
    typed = tuple(replace(a, kind="int" if a.name == "twice" else None) for a in analysed.tree.aggregates)
    again = explain(replace(analysed, root=replace(analysed.tree, aggregates=typed)), store, "1")
    assert again.totals[2].value == 2 * (1000 + 1100) and not again.unknown


def test_a_deleted_root_and_one_that_never_was(store: Kept) -> None:
    gone = explain(view(), store, "2")
    assert (gone.document, [row.state for row in gone.rows]) == (None, ["deleted"])
    assert gone.version is not None
    never = explain(view(), store, "1234")
    assert (never.version, never.document, never.rows) == (None, None, [])


def test_a_documents_id_names_its_root_row() -> None:
    lines = table("lines", "a b", a="int4", b="text")
    turned = JoinedView("v", lines, ("b", "a"), (), root=node(lines, "v", "root"))
    assert row_id(turned, "x\\|y|1") == "1|x\\|y"
    assert turned.document_of("1|x\\|y") == "x\\|y|1"
    assert row_id(turned, "x") is None


# -- differences and names ---------------------------------------------------------------------------------------------


def test_differences_are_named_by_their_deepest_place() -> None:
    left = {"a": 1, "b": {"c": [1, {"d": 2}]}, "e": 1, "n": None}
    right = {"a": 1.0, "b": {"c": [1, {"d": 3}, 4]}, "f": True, "n": None}
    found = list(differences(left, right))
    assert [one.field for one in found] == ["a", "b.c[1].d", "b.c[2]", "e", "f"]
    assert found[3].to_dict("sink", "expected") == {"field": "e", "sink": 1}
    assert found[4].to_dict("sink", "expected") == {"field": "f", "expected": True}
    assert not list(differences({"x": [1, {"y": None}]}, {"x": [1, {"y": None}]}))
    assert [one.field for one in without(found, [("b", "c", "d"), ("e",)])] == ["a", "b.c[2]", "f"]
    assert without([Difference(("bc",), 1, 2)], [("b",)])


def test_keys_that_may_have_been_meant() -> None:
    assert {"ua", "UA", "Ua"} - {"ua"} <= set(alike(" ua", 1))
    assert "7" in alike("007", 1) and "7" not in alike("7", 1)
    assert {"1|x", "x|1"} <= set(alike("(1, x)", 2))


FILE = """\
version: 1
name: lib
source: {host: 127.0.0.1, port: 1, database: lib, user: u, tables: [public.*]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:CONNECT"}
views:
  author: {root: authors}
  book: {root: books}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", views: [author, book]}
  other: {type: redis, url: "redis://127.0.0.1:1", view: author, key_prefix: "o:"}
engine: {state_dir: STATE}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Its servers are down; the tables are known from a last start."""
    catalogue = Catalogue({t.qualified: t for t in (AUTHORS, BOOKS)})
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "catalogue.json").write_text(catalogue.to_json())
    return loads(FILE.replace("STATE", str(tmp_path)).replace("CONNECT", "1"), "lib.yaml")


@pytest.mark.parametrize(
    ("sink", "name", "what", "fix"),
    [
        ("cahce", None, "no sink cahce", "did you mean cache?"),
        ("zzz", None, "no sink zzz", "choose from cache, other"),
        ("cache", "bok", "no view bok", "did you mean book?"),
        ("cache", "zzz", "no view zzz", "choose from author, book"),
        ("cache", None, "has 2 views", "--view author or --view book"),
    ],
)
def test_a_wrong_name_is_refused_with_what_was_meant(
    pipeline: Pipeline, sink: str, name: str | None, what: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        find_view(pipeline, sink, name, live=False)
    assert what in caught.value.what and fix in caught.value.fix


def test_the_only_view_needs_no_name_and_no_postgres(pipeline: Pipeline) -> None:
    assert find_view(pipeline, "other", None, live=False).name == "author"


def test_a_position_is_told_in_postgres_notation() -> None:
    assert _position(2 << 52 | 0x1_0000_00AB) == {"position": 2 << 52 | 0x1_0000_00AB, "epoch": 2, "lsn": "1/AB"}
    assert _position(None) == _position(-1) == {"position": None, "epoch": None, "lsn": None}


# -- what is printed ---------------------------------------------------------------------------------------------------

REPORT: dict[str, Any] = {
    "pipeline": "lib", "sink": "cache", "type": "redis", "view": "card", "key": "1", "generation": 1,
    "state": "running", "found": True, "near": [], "not_a_key": None, "computed": ["title"],
    "held": {"version": 1003, "epoch": 0, "lsn": "0/3EB", "document": {"id": 1, "name": "Eva", "title": "x"}},
    "rows": [
        {"path": "card", "table": "public.authors", "key": "1", "state": "shown", "position": 1000, "epoch": 0,
         "lsn": "0/3E8", "topic": "lib.public.authors", "partition": 3, "offset": 17},
        {"path": "card.chief", "table": "public.authors", "key": "9", "state": "missing", "position": None,
         "epoch": None, "lsn": None, "topic": "lib.public.authors", "partition": None, "offset": None},
    ],
    "left_out": {"card.books": 1200},
    "aggregates": [{"path": "card.total", "table": "public.books", "value": 2, "values": 2, "known": True}],
    "row_store": {"version": 1004, "waiting": 3, "document": {"id": 1, "name": "Ada"}, "equal": False,
                  "differences": [{"field": "name", "sink": "Eva", "row_store": "Ada"}]},
    "expected": {"document": {"id": 1}, "why": "", "equal": False,
                 "differences": [{"field": "title", "sink": "x"}]},
}  # fmt: skip


def test_the_text_names_record_version_and_differences(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT)
    text = capsys.readouterr().out
    for part in (
        "card 1 · sink cache (redis), generation 1, flow running",
        "held · version 1003 (LSN 0/3EB)",
        "computed by Spark SQL: title",
        "lib.public.authors/3/17",
        "never came",
        "card.books: the view's limit leaves out 1,200 more",
        "card.total = 2 · over public.books · 2 values",
        "row store · the newest version is 1004",
        'name: the sink has "Eva", row store has "Ada"',
        "3 documents of this view, perhaps this one, wait to be made again",
        "Postgres · differs from what the sink holds",
        'title: the sink has "x", Postgres has nothing',
    ):
        assert part in text


def test_a_key_that_is_nowhere_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    empty = {"held": None, "rows": [], "left_out": {}, "aggregates": [], "row_store": None, "expected": None}
    show({**REPORT, **empty, "found": False, "near": ["UA"]})
    text = capsys.readouterr().out
    assert "nothing has this key: not the sink\ndid you mean UA?" in text
    show({**REPORT, **empty, "found": False, "not_a_key": "UA is not an integer"})
    assert "UA is not an integer\n" in capsys.readouterr().out


def test_the_bare_command_shows_its_help_and_is_no_error() -> None:
    result = CliRunner().invoke(cli, [])
    assert result.exit_code == 0 and "Commands:" in result.output and "explain" in result.output
    assert CliRunner().invoke(cli, ["nonsense"]).exit_code != 0


# -- status ------------------------------------------------------------------------------------------------------------


def status(state: str, pid: int, at: float) -> FlowStatus:
    return FlowStatus("cache/card", state, pid, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, [], at)


def test_a_flow_that_fills_is_alive_until_its_process_is_gone(tmp_path: Path, pipeline: Pipeline) -> None:
    mine, now = psutil.Process().pid, time.time()
    assert state_of(status("filling", mine, now)) == "filling"
    assert state_of(status("filling", mine, now - 60)) == "dead"
    assert state_of(status("filling", 2**22 + 1, now)) == "dead"
    assert state_of(status("failed", 2**22 + 1, now)) == "failed"
    for flow, state in (("main", "running"), ("card", "filling")):
        status(state, mine, now).write(tmp_path / "lib" / "cache" / "g1" / flow)
    assert _sink(pipeline, "cache", None)["state"] == "filling"


def test_servers_that_are_down_make_the_source_unknown(pipeline: Pipeline) -> None:
    source = SourceState(pipeline).report()
    assert (source["connector"], source["tasks"], source["slot_lag_bytes"]) == ("unknown", [], None)
    assert "Kafka Connect does not answer" in source["error"] and "Postgres does not answer" in source["error"]
    assert line(source).startswith("source: connector unknown, slot unknown\n")
    assert warning(pipeline, source) is None


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_server_that_hangs_costs_three_seconds_at_most(tmp_path: Path, silent: int) -> None:
    text = FILE.replace("STATE", str(tmp_path)).replace("CONNECT", str(silent)).replace("port: 1", f"port: {silent}")
    began = time.monotonic()
    source = SourceState(loads(text, "lib.yaml")).report()
    assert time.monotonic() - began < 3
    assert source["connector"] == "unknown" and source["error"].count("no answer within") == 2


def test_the_line_of_the_source(pipeline: Pipeline) -> None:
    well = {
        "connector": "RUNNING",
        "tasks": ["RUNNING"],
        "slot_active": True,
        "slot_lag_bytes": 12 << 20,
        "wal": judge(retained=12 << 20, budget=10 << 30, limit=None).to_dict(),
        "tables": {},
        "error": None,
    }
    assert line(well) == "source: connector RUNNING, slot keeps 12 MiB"
    assert warning(pipeline, well) is None
    ill = {**well, "tasks": ["FAILED"], "slot_active": False, "slot_lag_bytes": 9 << 30, "error": "why"}
    open_one = Pin("transaction", 7, "", "shop", "psql", "shop", "idle in transaction", 7200.0, "UPDATE t")
    rising = [Sample(at * 5.0, (9 << 30) - (60 - at) * (10 << 20)) for at in range(61)]
    kept = {"retained": 9 << 30, "budget": 10 << 30, "limit": None}
    ill["wal"] = judge(**kept, samples=rising, pins=[open_one]).to_dict()
    assert line(ill) == (
        "source: connector RUNNING (task FAILED), slot keeps 9 GiB (90 % of what it may, full in about 9 min),"
        " which nobody reads\n  why\n  held back by transaction of shop in shop (psql, pid 7, idle in transaction),"
        " open for 2 h: UPDATE t: end it in the application, or SELECT pg_terminate_backend(7)"
    )
    assert line({**well, "tables": {"s.t": "table s.t was dropped"}}).endswith("12 MiB\n  table s.t was dropped")
    text = warning(pipeline, ill)
    assert text is not None and text.startswith("alarm: slot headwater_lib makes Postgres keep 9 GiB of WAL, 90 %")
    assert "policy.wal_budget (10 GiB)" in text and "connector" not in text, "it is a transaction that holds it"
    text = warning(pipeline, {**ill, "wal": judge(**kept).to_dict()})
    assert text is not None and "headwater apply" not in text and "restart the connector in Kafka Connect" in text
    assert json.dumps(ill)
