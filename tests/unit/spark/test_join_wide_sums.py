"""A sum that 64 bits have no room for is written with all its digits, or refused by itself: no batch ends for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest

from cdc.join.columns import arrow_columns
from cdc.join.incoming import RowMaker
from cdc.join.tree import Aggregate
from cdc.join.view import JoinedView
from cdc.letters.words import LEFT_OUT, bare, cause_of, hidden
from cdc.records.change import Change, Op
from operations.explain.report import _total
from sinks.rowstore.memory.store import MemoryStore
from spark.join import stage
from spark.join.engine import Joiner, Made
from spark.join.explain import explain
from spark.join.stage import entries_of
from spark.join.table_stage import COLUMNS, table_batch, table_entries
from spark.join.task import Task
from spark.reading.spec import FlowSpec
from tests.support.trees import node, table
from truth.arithmetic import aggregate, cells_of
from truth.assembled import marked, sums_of
from truth.joins import documents
from truth.values import canonical, exact

OWNERS = table("owners", "id", id="int4", chief="int4")
SHARES = table("shares", "id", id="int4", owner="int4", n="int8")
ON = (("id", "owner"),)
WORTH = Aggregate("worth", SHARES, ON, "sum", value="n")
# Beyond a signed, and beyond an unsigned number of 64 bits.
SUMS = {1: 3 * 9 * 10**18, 2: 2**63 + 5, 3: -(2**63) - 1, 4: 7}


def view_of(*, where: str | None = None, hide: bool = False) -> JoinedView:
    """Owners with what they are worth, and their chief (or, behind a hidden row, that one's) with what he is worth."""
    chief = node(OWNERS, "chief", "ref", (("chief", "id"),), columns=(("id", "id"),), aggregates=(WORTH,))
    if hide:
        chief = node(OWNERS, "between", "ref", (("chief", "id"),), columns=(("id", "id"),), refs=(chief,), hide=True)
    root = node(OWNERS, columns=(("id", "id"),), refs=(chief,), aggregates=(WORTH,))
    return JoinedView("card", OWNERS, ("id",), root.columns, where=where, root=root)


class World:
    """Four owners, of whom 1 is everybody's chief, and shares that add up to SUMS."""

    def __init__(self, view: JoinedView, *, filling: bool = False) -> None:
        self.view, self.store = view, Kept()
        self.joiner = Joiner(view, self.store, filling=filling)
        makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
        rows: list[tuple[Any, dict[str, int]]] = [(OWNERS, {"id": id, "chief": 1}) for id in SUMS]
        for owner, total in SUMS.items():
            parts = [total // 3, total // 3, total - 2 * (total // 3)]
            rows += [(SHARES, {"id": owner * 10 + at, "owner": owner, "n": n}) for at, n in enumerate(parts)]
        self.shares = [row for of, row in rows if of is SHARES]
        changes = [
            makers[of.qualified].make(
                Change(of.qualified, Op.CREATE, {"id": row["id"]}, row, 1000 + at, of.name, 0, at, 0)
            )
            for at, (of, row) in enumerate(rows)
        ]
        self.changes = [one for one in changes if one.table == OWNERS.qualified]
        self.others = [one for one in changes if one.table != OWNERS.qualified]

    def made(self) -> list[Made]:
        """All documents."""
        found: dict[str, Made] = {}
        for piece in self.joiner.process([*self.changes, *self.others], Task(0, 1), _refuse):
            found |= {one.key: one for one in piece}
        return [found[key] for key in sorted(found)]


class Kept(MemoryStore):
    """With ``get`` of a version, as a server has it."""

    def get(self, keys: Any) -> list[bytes | None]:
        return [str(value).encode() if isinstance(value, int) else value for value in super().get(keys)]


def _refuse(*_: object) -> None:
    raise AssertionError("nothing is to be refused")


def worth(document: bytes | None) -> bytes:
    """The digits of a sum in a document."""
    return orjson.dumps(exact(document or b"")["worth"])


def test_a_sum_beyond_64_bits_has_all_its_digits_in_a_document_as_verify_computes_it() -> None:
    world = World(view_of())
    documents = world.joiner.documents(world.made())
    assert [worth(one) for one in documents] == [b"%d" % total for total in SUMS.values()]
    assert all(worth(orjson.dumps(exact(one or b"")["chief"])) == b"%d" % SUMS[1] for one in documents)
    for total, document in zip(SUMS.values(), documents, strict=True):
        cells = [cells_of(SHARES.by_name["n"])(n) for n in (total // 3, total // 3, total - 2 * (total // 3))]
        assert worth(document) == orjson.dumps(aggregate("sum", cells))


def test_a_hidden_row_s_sum_beyond_64_bits_is_lifted() -> None:
    world = World(view_of(hide=True))
    chiefs = [exact(one or b"")["chief"] for one in world.joiner.documents(world.made())]
    assert [worth(orjson.dumps(chief)) for chief in chiefs] == [b"%d" % SUMS[1]] * 4


def test_a_fill_keeps_a_row_with_such_a_sum() -> None:
    world = World(view_of(), filling=True)
    world.joiner.load(world.others, Task(0, 1), _refuse)
    world.joiner.load(world.changes, Task(1, 2), _refuse)
    made = [one for piece in world.joiner.build([str(key) for key in SUMS], Task(2, 3)) for one in piece]
    assert [worth(one) for one in world.joiner.documents(made)] == [b"%d" % total for total in SUMS.values()]


def test_explain_tells_such_a_sum() -> None:
    world = World(view_of())
    world.made()
    found = explain(world.view, world.store, "1")
    told = [orjson.loads(orjson.dumps(_total(total))) for total in found.totals]
    assert {total["path"]: total["value"] for total in told} == {"card.worth": 27e18, "card.chief.worth": 27e18}
    assert canonical(found.document) == canonical(b'{"id":1,"chief":{"id":1,"worth":27e18},"worth":27e18}')


def test_spark_sql_over_such_a_sum_refuses_that_document_and_no_other() -> None:
    """2^63 + 5 is JSON, and no ``bigint``: Arrow would have refused every row of the batch."""
    chiefless = replace(view_of(where="worth > 0"), root=replace(view_of().tree, refs=()))
    world = World(chiefless)
    entries, unfit = entries_of(world.joiner, world.made(), 0)
    assert [(entry.id, entry.document) for entry in entries] == [
        *((id, None) for id in "123"),
        ("4", b'{"id":4,"worth":7}'),
    ]
    assert [(entry.id, worth(entry.document)) for entry, _ in unfit] == [(str(i), b"%d" % SUMS[i]) for i in (1, 2, 3)]
    rows = list(zip(*(entry.row or (None,) * len(chiefless.arrow_schema()) for entry in entries), strict=True))
    arrays = [pa.array(values, f.type) for values, f in zip(rows, chiefless.arrow_schema(), strict=True)]
    assert arrays[-1].to_pylist() == [None, None, None, 7]


@pytest.mark.parametrize(
    ("where", "refused"),
    [
        ("id > 0", []),
        ("concat('worth', id) > 'a'", []),
        ("to_json(struct(*)) > 'a'", ["1", "2", "3", "4"]),
        ("chief.id > 0", ["1", "2", "3", "4"]),  # the object that a sum is in: whether as a whole is not asked
    ],
)
def test_a_sum_that_no_expression_names_takes_no_document_away(where: str, refused: list[str]) -> None:
    world = World(view_of(where=where))
    entries, unfit = entries_of(world.joiner, world.made(), 0)
    assert [entry.id for entry, _ in unfit] == refused
    if not refused:
        assert [worth(entry.document) for entry in entries] == [b"%d" % total for total in SUMS.values()]
        assert [(entry.row or ())[-1] for entry in entries] == [None, None, None, 7]


@pytest.mark.parametrize(
    "where", ["id > 0", "worth > 0", "chief.id > 0", "to_json(struct(*)) > 'a'", "to_json(struct(chief.*)) > 'a'"]
)
@pytest.mark.parametrize("hide", [False, True])
def test_verification_knows_which_documents_are_refused(where: str, hide: bool) -> None:
    """Spark, which was asked of all of them, failed for the whole page; and of some it could say what was nowhere."""
    view = view_of(where=where, hide=hide)
    world = World(view)
    _, unfit = entries_of(world.joiner, world.made(), 0)
    tree = marked(view.tree, view.row_sql)
    sums = sums_of(tree, view.row_sql, {})
    rows: dict[str, list[dict[str, str | None]]] = {
        OWNERS.qualified: [{"id": str(id), "chief": "1"} for id in SUMS],
        SHARES.qualified: [{name: str(value) for name, value in row.items()} for row in world.shares],
    }
    assert [key for key, row in documents(tree, ("id",), rows) if sums.without_place(row)] == [e.id for e, _ in unfit]


def test_of_a_new_document_that_is_refused_nothing_need_be_deleted() -> None:
    world = World(view_of(where="worth > 0"))
    made = [one._replace(new=True) for one in world.made()]
    entries, unfit = entries_of(world.joiner, made, 0)
    assert entries == [] and [entry.id for entry, _ in unfit] == ["1", "2", "3", "4"], "all have chief 1"


def test_what_spark_sql_can_t_hold_is_a_dead_letter_of_its_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(view_of(where="worth > 0"))
    spec = cast(FlowSpec, type("Spec", (), {"sink": "search", "generation": 2}))
    monkeypatch.setattr(stage, "unpack", lambda _: spec)
    _, letters = stage.documents_form(b"")(world.joiner, world.made()[:1], 0)
    ((sink, key, why),) = [(letter.sink, letter.key, letter.reason) for letter in letters]
    assert (sink, key) == ("search", "1") and why.endswith("27000000000000000000 is not an integer of 64 bits")
    assert "aggregate worth, for which a sum of decimals has room (docs/views.md, Aggregates)" in cause_of(why), (
        "a view may have several: the letter says which, and the way out, without figures, which are left out of causes"
    )
    sums = world.view.elasticsearch_mapping()["worth"]
    assert sums == {"type": "long", "ignore_malformed": True}, "such a sum is in the document, and not indexed"
    assert bare(why) == "a value has no place in Spark SQL's types" != LEFT_OUT
    assert str(SUMS[1]) not in hidden(why)


def test_a_table_refuses_that_document_and_takes_the_others() -> None:
    world = World(replace(view_of(), root=replace(view_of().tree, refs=())))
    entries, unfit = table_entries(world.joiner, world.made())
    assert [entry.id for entry, _ in unfit] == ["1", "2", "3"]
    assert [entry.id for entry in entries if entry.document is not None] == ["4"]
    batch = table_batch(world.view, entries)
    assert batch.column(COLUMNS).type == arrow_columns(world.view) and batch.num_rows == len(SUMS)
