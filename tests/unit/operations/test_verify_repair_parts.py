"""The parts of repair and audit that need no server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc.catalogue import Column, Table
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.keys import stray_id
from cdc.records.position import MAX_LSN, pack
from cdc.view import View
from operations.holding import Holds
from operations.metrics.audit import Totals, metrics
from operations.records.newest import Asked, Record
from operations.verify.audit import line
from operations.verify.buckets import Keys
from operations.verify.comparison import marked, unmarked
from operations.verify.repair import repair
from operations.verify.repair.repair import ROOM, reachable, root_of, write_above
from operations.verify.repair.warehouse import statement
from operations.verify.repair.work import Refused, Repair
from sinks.contract import MAX_VERSION, STALE, UNREADABLE, WRITTEN, Answer, Item, rejected
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec

POSITION = 748903240  # as every LSN a multiple of eight


class Shelf:
    """Answers as a sink does that holds these versions."""

    def __init__(self, **held: int) -> None:
        self.held, self.documents = dict(held), dict[str, bytes | None]()

    def write(self, _target: str, items: Sequence[Item]) -> list[Answer]:
        return [self._one(item) for item in items]

    def _one(self, item: Item) -> Answer:
        if item.document == b"poison":
            return rejected("no")
        if item.version < self.held.get(item.key, 0):
            return STALE
        self.held[item.key], self.documents[item.key] = item.version, item.document
        return WRITTEN


def written(shelf: Any, version: int, document: bytes | None = b"{}") -> dict[str, Answer]:
    return write_above(shelf, "t", {"a": Item("a", version, document)}, {"a": version | ROOM})


@pytest.mark.parametrize("above", range(9))
def test_a_repair_stays_below_the_next_possible_position(above: int) -> None:
    shelf = Shelf(a=POSITION + above)
    refused = written(shelf, POSITION)
    assert bool(refused) is (above > ROOM)
    assert shelf.held["a"] == POSITION + above < POSITION + 8 or refused
    # The row's next change is at least eight bytes of WAL away, and must win.
    assert shelf.write("t", [Item("a", POSITION + 8, b"{}")]) == [WRITTEN] or above > 8


def test_what_the_sink_refuses_is_told_and_not_tried_again() -> None:
    shelf = Shelf()
    assert written(shelf, POSITION, b"poison")["a"].reason == "no"
    assert written(shelf, POSITION, None) == {} and shelf.documents == {"a": None}


def test_reasons_are_given_for_the_keys_that_still_differ(tmp_path: Path) -> None:
    refused, left = Refused("somehow"), Keys(tmp_path / "left")
    refused.add("a", "because")
    for kind, key in (("missing", "a"), ("changed", "b")):
        left.add(marked(kind, key))  # type: ignore[arg-type]
    left.flush()
    assert refused.explained(left) == [{"key": "a", "why": "because"}, {"key": "b", "why": "somehow"}]
    assert unmarked(marked("extra", "+1")) == ("extra", "+1")


def test_the_roots_key_is_found_when_the_view_names_its_columns_in_another_order() -> None:
    columns = tuple(Column(name, "text", "text") for name in ("a", "b", "c"))
    table = Table("public", "t", columns, ("a", "b", "c"))
    view = JoinedView("t", table, ("c", "a", "b"), (("a", "a"),), root=Node("t", "root", table))
    assert root_of(view, view.document_of("1|2\\|2|3")) == "1|2\\|2|3"
    assert view.document_of("1|2\\|2|3") == "3|1|2\\|2"


def test_the_merge_leaves_rows_alone_that_changed_since_they_were_seen() -> None:
    view = View.identity(Table("public", "t", (Column("id", "int4", "int4"), Column("v", "text", "text")), ("id",)))
    said = statement("c.n.t", view, ["id", "v", "_hw_version"])
    assert said.count("coalesce(t._hw_version, -2) <= s._hw_seen") == 2
    assert "WHEN MATCHED AND s._hw_gone AND coalesce(t._hw_version, -2) <= s._hw_seen THEN DELETE" in said
    assert "ON t.`id` <=> s.`id` AND NOT coalesce(s._hw_added, false) " in said


# -- versions that no change can reach ---------------------------------------------------------------------------------

TABLE = Table("public", "t", (Column("id", "int4", "int4"),), ("id",))
PLAIN = View.identity(TABLE)
JOINED = JoinedView("t", TABLE, ("id",), (("id", "id"),), root=Node("t", "root", TABLE))
EPOCH = 3


@pytest.mark.parametrize(
    ("view", "version", "reached"),
    [
        (PLAIN, 0, True),
        (PLAIN, pack(EPOCH, POSITION) | ROOM, True),
        (PLAIN, pack(EPOCH, POSITION + 8), False),
        (PLAIN, pack(EPOCH + 1, POSITION), False),
        (PLAIN, UNREADABLE, False),
        (PLAIN, MAX_VERSION, False),
        (JOINED, pack(EPOCH + 1, POSITION), True),
        (JOINED, pack(EPOCH + 1, MAX_LSN), True),
        (JOINED, pack(EPOCH + 2, 0), False),
        (JOINED, UNREADABLE, False),
        (JOINED, MAX_VERSION, False),
    ],
)
def test_what_is_held_under_a_version_that_no_change_can_reach_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: View, version: int, reached: bool
) -> None:
    """And nothing else is: a joined document's version is counted on, under the next epoch."""
    monkeypatch.setattr(repair, "snapshot", lambda _: nullcontext())
    monkeypatch.setattr(repair, "wal_position", lambda _: POSITION)
    spec, forgotten = FlowSpec("s", {"t": view}, {}, {}, {}, {}, epoch=EPOCH), list[str]()
    work = SimpleNamespace(
        build=SimpleNamespace(pipeline=SimpleNamespace(source=None)),
        flow=Flow("t", spec, Reading("", {}, None), tmp_path),
        view=view,
        sink=SimpleNamespace(forget=lambda _view, keys: forgotten.extend(keys)),
    )
    kept = reachable(cast(Repair, work), {"good": Holds(8, b""), "asked": Holds(version, b"")})
    assert list(kept) == (["good", "asked"] if reached else ["good"])
    assert forgotten == ([] if reached else ["asked"])


# -- the audit ---------------------------------------------------------------------------------------------------------


def report(**changed: Any) -> dict[str, Any]:
    view = {"view": 'v"1', "expected": 1000, "differences": 0, "undecided": 1, "repaired": 3, "missing": [],
            "extra": ["x"], "changed": []}  # fmt: skip
    return {
        "at": 5.0,
        "seconds": 1.25,
        "equal": True,
        "sample": {"rows": 10, "seed": 1},
        "sinks": [{"sink": "cache", "views": [view | changed], "still": []}],
    }


def test_metrics_are_as_prometheus_reads_them() -> None:
    totals = Totals(300.0)
    assert "headwater_verify_equal" not in metrics("p", totals)
    totals.take(report())
    totals.take(report(differences=2))
    totals.runs, totals.errors, totals.seconds = 3, 1, 1.3
    text = metrics("p", totals)
    assert text.endswith("\n") and "\n\n" not in text
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    values = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    def value(name: str, **labels: str) -> float:
        return float(values[f"headwater_verify_{name}", frozenset(({"pipeline": "p"} | labels).items())])

    one = {"sink": "cache", "view": 'v"1'}
    assert value("differences", **one) == 2
    assert value("named_differences", **one, kind="extra") == 1
    assert value("repaired_total", **one) == 6
    assert value("errors_total") == 1
    assert {sample.name for sample in samples} == {
        line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")
    }


def told(totals: Totals, name: str) -> dict[str, float]:
    """A metric of an audit, by sink; of one without that label by ``""``."""
    return {
        sample.labels.get("sink", ""): sample.value
        for family in text_string_to_metric_families(metrics("p", totals))
        for sample in family.samples
        if sample.name == f"headwater_verify_{name}"
    }


def partly(*, at: float, cache: int, search: int | None) -> dict[str, Any]:
    """A report of two sinks, with so many differences; None: one could not be compared."""
    view = {**report()["sinks"][0]["views"][0], "repaired": 0}
    failed = {"sink": "search", "error": "Elasticsearch does not answer", "views": []}
    sinks = [
        {"sink": "cache", "error": None, "views": [view | {"differences": cache}]},
        failed if search is None else {"sink": "search", "error": None, "views": [view | {"differences": search}]},
    ]
    return report() | {"at": at, "equal": search is not None and not cache + search, "sinks": sinks}


def test_a_sink_that_can_not_be_compared_does_not_differ_for_that() -> None:
    """Somebody is woken for sinks that differ; this has a name of its own."""
    totals = Totals(300.0)
    totals.take(partly(at=10, cache=0, search=None))
    assert told(totals, "equal") == {"": 1}
    assert told(totals, "unverified") == {"cache": 0, "search": 1}
    assert told(totals, "last_success_timestamp_seconds") == {}, "not all was compared yet"
    totals.take(partly(at=20, cache=0, search=0))
    totals.take(partly(at=30, cache=0, search=None))
    assert told(totals, "last_success_timestamp_seconds") == {"": 20}
    assert totals.errors == 2


def test_one_that_differed_does_so_until_it_is_compared_again() -> None:
    totals = Totals(300.0)
    totals.take(partly(at=10, cache=0, search=2))
    totals.take(partly(at=20, cache=0, search=None))
    assert told(totals, "equal") == {"": 0} and told(totals, "differences") == {"cache": 0, "search": 2}
    totals.take(partly(at=30, cache=0, search=0))
    assert told(totals, "equal") == {"": 1} and told(totals, "unverified") == {"cache": 0, "search": 0}


def test_a_sink_that_is_paused_is_as_it_was() -> None:
    """A pause repairs nothing; and is no failure of the audit's."""
    totals = Totals(300.0)
    totals.take(partly(at=10, cache=0, search=2))
    paused = {"sink": "search", "error": None, "paused": {"why": "disk"}, "views": []}
    first = partly(at=20, cache=0, search=0)
    totals.take(first | {"sinks": [first["sinks"][0], paused]})
    assert told(totals, "equal") == {"": 0} and told(totals, "differences") == {"cache": 0, "search": 2}
    assert told(totals, "unverified") == {"cache": 0, "search": 0} and totals.errors == 0
    assert told(totals, "last_success_timestamp_seconds") == {"": 20}


def test_where_nothing_could_be_compared_nobody_says_that_it_is_equal() -> None:
    totals = Totals(300.0)
    totals.take(report() | {"equal": False, "sinks": [{"sink": "cache", "error": "it is away", "views": []}]})
    assert told(totals, "equal") == {} and told(totals, "unverified") == {"cache": 1}
    assert told(totals, "every_seconds") == {"": 300}


def test_every_metric_is_documented() -> None:
    totals = Totals(300.0)
    totals.take(report())
    names = {text.split()[2] for text in metrics("p", totals).splitlines() if text.startswith("# TYPE")}
    page = (Path(__file__).parents[3] / "docs/metrics.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_a_line_says_what_was_found() -> None:
    assert "1,000 rows of a sample in 1.2 s: equal" in line(report())
    assert 'cache/v"1 2 differ' in line(report(differences=2))


# -- looking a few rows up in the log ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ids", "keys"),
    [
        ("int8", ["7", "-3", "70", "x", "07", "9" * 30], [7, -3, 70, 0, 9]),
        ("text", ["a", "", "a b", "~"], ["a", "", "a b", "~", "b"]),
        ("text", ["é", 'q"', "b\\"], ["é", 'q"', "b\\", "e", "q"]),
        ("uuid", ["0000"], ["0000", "0001"]),
    ],
)
@pytest.mark.parametrize("spaced", [False, True])
def test_a_records_key_is_found_as_bytes_just_as_decoded(
    kind: str, ids: list[str], keys: list[Any], spaced: bool
) -> None:
    view = View.identity(Table("public", "t", (Column("k", kind, kind), Column("v", "text", "text")), ("k",)))
    spec = FlowSpec("s", {"t": view}, {"p.public.t": ("t",)}, {"p.public.t": view.table}, {}, {})
    asked = Asked(spec.decoders()["p.public.t"], view, "p.public.t", [*ids, stray_id(b"\xff")])
    made = [json.dumps({"k": key}, ensure_ascii=False, separators=None if spaced else (",", ":")) for key in keys]
    found = [asked(Record(text.encode(), b"", "p.public.t", 0, at)) for at, text in enumerate(made)]
    assert found == [str(key) in ids for key in keys]
    assert not asked(Record(None, b"", "p.public.t", 0, 0)) and not asked(Record(b"\xff", b"", "p.public.t", 0, 0))
    plain = not spaced and kind != "uuid" and "é" not in ids
    assert (asked._exact is not None) is plain, "millions of other keys are not decoded"
