"""What is done for each record of the log by a shorter way: what comes out, held against the longer one."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any, cast

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import DecodeError, UnavailableValue
from cdc.join.incoming import Incoming, RowMaker
from cdc.join.layout import Layout
from cdc.join.rows import Stamp, body_of, read, write
from cdc.join.tree import Aggregate, Node
from cdc.records.change import Change, Op
from sinks.contract import Answer, Outcome
from sinks.rowstore.contract import Attempt, RowStore
from spark.join.maintain import Maintainer
from spark.join.task import Part
from spark.reading.entries import Entry
from spark.reading.spec import FlowSpec
from spark.write import _account

PARENT = Table("public", "p", (Column("id", "integer", "int4"),), ("id",))
TABLE = Table(
    "public",
    "t",
    (Column("id", "integer", "int4"), Column("p", "integer", "int4"), Column("at", "timestamptz", "timestamptz")),
    ("id",),
)
COLUMNS = (("at", "at"), ("p", "p"))
MOMENT = "2026-01-02T03:04:05.000000Z"


def change(op: Op = Op.UPDATE, at: str = MOMENT, unavailable: tuple[str, ...] = ()) -> Change:
    return Change("public.t", op, {"id": 7}, {"id": 7, "p": 3, "at": at}, 5, "topic", 2, 9, 11, unavailable)


@pytest.mark.parametrize("op", [Op.READ, Op.CREATE, Op.UPDATE])
@pytest.mark.parametrize("unavailable", [(), ("p",)])
def test_a_row_without_aggregates_is_that_of_one_with_some_as_far_as_its_columns_go(
    op: Op, unavailable: tuple[str, ...]
) -> None:
    counted = Aggregate("n", TABLE, (("id", "p"),), "count")
    made: list[Incoming | type[Exception]] = []
    for aggregates in ((), (counted,)):
        layout = Layout.of(Node("v", "root", TABLE, columns=COLUMNS, aggregates=aggregates)).tables["public.t"]
        try:
            one = RowMaker(layout).make(change(op, unavailable=unavailable))
            assert one.row is not None
            made.append(one._replace(row=one.row[: len(layout.columns)]))
        except UnavailableValue as error:
            made.append(type(error))
    assert made[0] == made[1]


def test_what_is_refused_names_its_record() -> None:
    layout = Layout.of(Node("v", "root", TABLE, columns=COLUMNS)).tables["public.t"]
    with pytest.raises(DecodeError, match=r"^record topic/2/9: a value of public\.t is not of its column's type"):
        RowMaker(layout).make(change(at="no moment"))
    long = Aggregate("long", TABLE, (("id", "p"),), "count", where="p > 3")
    layout = Layout.of(Node("v", "root", TABLE, aggregates=(long,))).tables["public.t"]
    with pytest.raises(UnavailableValue, match="topic/2/9"):
        RowMaker(layout).make(change(unavailable=("p",)), [1])


def test_a_row_that_moves_is_seen_where_it_is_now_then_where_it_was() -> None:
    """For all that may be there before: no row, a deleted one, one that was replaced while pending, in this era or
    another, the same row or another one, or one that goes away."""
    children = Node("of", "children", TABLE, (("id", "p"),), COLUMNS)
    layout = Layout.of(Node("v", "root", PARENT, (), (("id", "id"),), (children,)))
    made = Maintainer(layout, cast(RowStore, None), era=1)
    table = made.tables["public.t"]
    wide = len(table.layout.columns)
    (place,) = table.layout.places(("p",))

    def row(parent: int | None) -> list[Any] | None:
        return None if parent is None else [parent if at == place else "x" for at in range(wide)]

    for before, after, undone, pending, era in product(
        (None, 3, 4), (None, 3), ([], [[8], [4]]), (False, True), (1, 2)
    ):
        part = Part(Attempt(), ["r"] if pending else [])
        stored = read(write(Stamp(5, 1, 0), undone, body_of(row(before)), era))
        incoming = Incoming("public.t", "7", Stamp(6, 2, 0), row(after), (), 0, "topic")
        swap, touch = made._decide("r", incoming, stored, part)
        if before == after and not pending and era == 1:
            assert touch is None
            continue
        replaced = list(undone) if pending or era == 2 else []
        moved = before is not None and before != after
        replaced += [[before]] if moved else []
        assert touch is not None and swap is not None
        assert touch.seen == [(one,) for one in ([after] if after is not None else [])] + [tuple(r) for r in replaced]
        assert touch.routes == (None if after is None else (after,))
        assert touch.fresh == (pending or bool(replaced) or before != after or era == 2)
        assert read(swap.value).replaced == replaced


def test_answers_are_counted_as_they_come() -> None:
    rng = random.Random(3)
    spec = cast(FlowSpec, type("Spec", (), {"sink": "s", "generation": 1}))
    count: Counter[str] = Counter(position=50, ts_ms=7, written=2)
    wanted = Counter(count)
    for size in (1, 40, 3):
        group, answers = [], []
        for number in range(size):
            entry = Entry(
                "v", str(number), rng.randrange(100), rng.choice((None, b"{}")), "t", 0, number, rng.randrange(100)
            )
            answer = Answer(rng.choice(list(Outcome)), "why")
            name = {Outcome.REJECTED: "rejected", Outcome.STALE: "stale"}.get(answer.outcome)
            wanted[name or ("deleted" if entry.document is None else "written")] += 1
            for field, value in (("position", entry.version), ("ts_ms", entry.ts_ms)):
                wanted[field] = max(wanted[field], value)
            group.append(entry)
            answers.append(answer)
        letters = _account(spec, group, answers, count)
        assert [one.key for one in letters] == [
            entry.id for entry, answer in zip(group, answers, strict=True) if answer.outcome is Outcome.REJECTED
        ]
        assert count == wanted
