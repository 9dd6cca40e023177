"""A view of events of some types: rows of other types are no documents of it, whoever asks Postgres for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cdc.catalogue import Catalogue, Column, Table
from cdc.pipeline import loads
from cdc.resolve.views import resolve_view, table_view
from cdc.view import View
from operations.preview.asked import Asked, keys_of, near_keys
from tests.support.outbox_file import HEAD
from truth import sample
from truth.event_types import ALL, of_types
from truth.expected import expected
from truth.sample import sampled_ids

TEXT = (
    HEAD
    + """\
views:
  order_event: {root: outbox, events: [order], columns: [id, {aggregateid: order_id}]}
  both: {root: outbox, events: [customer, order], columns: [id]}
  every: {root: outbox, columns: [id]}
  order: {root: orders}
sinks:
  cache: {type: redis, url: "redis://h:6379/0", views: [order_event, both, every, order]}
"""
)
NAMES = ("id", "aggregatetype", "aggregateid")
OUTBOX = Table("public", "outbox", tuple(Column(name, "text", "text", ordinal=at) for at, name in enumerate(NAMES, 1)))
OUTBOX = replace(OUTBOX, primary_key=("id",))
ORDERS = Table("public", "orders", (Column("id", "text", "text"),), ("id",))
CATALOGUE = Catalogue({table.qualified: table for table in (ORDERS, OUTBOX)})
PIPELINE = loads(TEXT, "p.yaml", {})
ROWS = [
    {"id": "e1", "aggregatetype": "order", "aggregateid": "4711"},
    {"id": "e2", "aggregatetype": "customer", "aggregateid": "7"},
    {"id": "e3", "aggregatetype": "Order", "aggregateid": "7"},
    {"id": "e4", "aggregatetype": "order ", "aggregateid": "7"},
]
WANTED = [("order_event", ["e1"]), ("both", ["e1", "e2"]), ("every", ["e1", "e2", "e3", "e4"])]


class Server:
    """Answers from ``ROWS`` as far as the few queries here go: which columns, which keys, which types.

    Args:
        in_blocks: how many of the rows lie in the first blocks that are sampled; None for all.
        in_more: the same of more blocks.
        slow: what a query that takes too long has in it.
    """

    connection = None  # of Postgres, for the encoding

    def __init__(self, in_blocks: int | None = None, in_more: int | None = None, slow: str | None = None) -> None:
        self.asked, self.slow, self.limit = list[str](), slow, ""
        self.in_blocks, self.shares = [in_blocks, in_blocks if in_more is None else in_more], list[float]()
        self.limits = list[str]()

    @contextmanager
    def transaction(self, *, force_rollback: bool = False) -> Iterator[None]:
        before, failed = self.limit, True
        try:
            yield
            failed = False
        finally:
            if failed or force_rollback:
                self.limit = before

    @contextmanager
    def cursor(self, name: str = "", binary: bool = False) -> Iterator[Any]:
        yield Cursor(self)

    def execute(self, query: Any, params: Any = ()) -> Cursor:
        if isinstance(query, str) and "statement_timeout" in query:
            [self.limit] = params
        return Cursor(self).execute(query)

    def answer(self, text: str) -> list[tuple[str, ...]]:
        self.asked.append(text)
        self.limits.append(self.limit)
        if self.slow is not None and self.slow in text:
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        head, rest = re.split(r' FROM (?="public"|\(SELECT)', text, maxsplit=1)
        names = list(dict.fromkeys(re.findall(r'format\(\'%s\', (?:t\.)?"(\w+)"\)', head)))
        types = re.search(r"""format\('%s', (?:"t"\.)?"aggregatetype"\) COLLATE "C" IN \((.*?)\)""", rest)
        keys = re.search(r"unnest\('\{(.*?)\}'", rest)
        found = ROWS
        if share := re.search(r"TABLESAMPLE SYSTEM \(([\d.]+)\)", rest):
            found = ROWS[: self.in_blocks[bool(self.shares)]]
            self.shares.append(float(share[1]))
        limit = re.search(r" LIMIT (\d+)$", rest)
        return [
            tuple(row[name] for name in names)
            for row in found
            if (types is None or f"'{row['aggregatetype']}'" in types[1].split(", "))
            and (keys is None or f'"{row["id"]}"' in keys[1].split(","))
        ][: int(limit[1]) if limit else None]


class Cursor:
    def __init__(self, server: Server) -> None:
        self._server, self._rows = server, list[tuple[str, ...]]()

    def execute(self, query: Any) -> Cursor:
        self._rows = [] if isinstance(query, str) else self._server.answer(query.as_string(None))
        return self

    def fetchmany(self, size: int) -> list[tuple[str, ...]]:
        found, self._rows = self._rows[:size], self._rows[size:]
        return found

    def fetchall(self) -> list[tuple[str, ...]]:
        return self._rows

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        yield from self._rows


def view_of(name: str) -> View:
    return resolve_view(PIPELINE, CATALOGUE, name)


Asking = Callable[[Any, View], list[str]]


def whole(server: Any, view: View) -> list[str]:
    return [one.key for one in expected(view, server, None)]


def by_key(server: Any, view: View) -> list[str]:
    return [one.key for one in expected(view, server, None, ["e1", "e2", "e3", "e4", "gone"])]


def sampled(server: Any, view: View) -> list[str]:
    return sampled_ids(server, view, 10, 1)


def suggested(server: Any, view: View) -> list[str]:
    return near_keys(server, view, "E1")


def by_condition(server: Any, view: View) -> list[str]:
    server.cursor = lambda **_: Cursor(server)
    return keys_of(server, view, Asked(where="aggregateid > '1'"))


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "rows_of", lambda *_: len(ROWS))
    monkeypatch.setattr("operations.preview.asked.alike", lambda _key, _parts: [row["id"] for row in ROWS])


@pytest.mark.parametrize(("name", "wanted"), WANTED)
@pytest.mark.parametrize("asking", [whole, by_key, sampled, suggested, by_condition])
def test_only_events_of_its_types_are_documents_of_a_view(asking: Asking, name: str, wanted: list[str]) -> None:
    """Each kept row of another type was missing for good: verify never called the view equal, no generation of it was
    ever promoted, and preview showed events that no sink has."""
    assert asking(Server(), view_of(name)) == wanted


def test_a_view_of_another_table_or_of_all_events_asks_for_every_row() -> None:
    for view in (view_of("every"), view_of("order"), table_view(PIPELINE, OUTBOX)):
        assert of_types(view) == ALL
    assert view_of("order_event") != replace(
        view_of("both"), name="order_event", columns=view_of("order_event").columns
    )


def test_a_sample_that_finds_too_few_in_its_blocks_is_drawn_from_the_whole_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a type that few rows have there may be none in them, and preview would have nothing to show."""
    monkeypatch.setattr(sample, "rows_of", lambda *_: 1_000_000)
    server: Any = Server(in_blocks=1)
    assert sampled_ids(server, view_of("both"), 1, 1) == ["e1"] and len(server.asked) == 1
    server = Server(in_blocks=1)
    assert sampled_ids(server, view_of("both"), 2, 1) == ["e1", "e2"]
    assert ["TABLESAMPLE" in one for one in server.asked] == [True, False]


def previewed(server: Any, name: str = "both", count: int = 2) -> list[str]:
    return keys_of(server, view_of(name), Asked(sample=count))


@pytest.mark.parametrize("known", [10_100, 100_000, 50_000_000])
def test_a_sample_of_a_large_table_is_of_ten_blocks_at_the_least(monkeypatch: pytest.MonkeyPatch, known: int) -> None:
    """Of a table of 10,000 rows the share for five of them was that of half a block: mostly none was drawn."""
    monkeypatch.setattr(sample, "rows_of", lambda *_: known)
    server: Any = Server()
    sampled_ids(server, view_of("every"), 1, 1)
    [share] = server.shares
    assert known * share / 100 >= 3_000 and share < 35


def test_a_preview_reads_no_large_table_whole_for_a_rare_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads for 30 s at the most, and failed by that."""
    monkeypatch.setattr(sample, "rows_of", lambda *_: 1_000_000)
    server: Any = Server(in_blocks=1)
    assert previewed(server) == ["e1"], "one is enough"
    assert len(server.shares) == 4 == len(server.asked), "after a look into more blocks"
    assert [round(one / server.shares[0], 3) for one in server.shares] == [1, 2, 4, 8]
    server = Server(in_blocks=1, in_more=2)
    assert previewed(server) == ["e1", "e2"] and len(server.asked) == 2
    server = Server(in_blocks=0)
    assert previewed(server) == ["e1", "e2"]
    assert [one.endswith(" LIMIT 2") for one in server.asked] == [False] * 4 + [True]
    assert server.limits == ["", "5s", "5s", "5s", "5s"] and server.limit == "", "what comes after has its own limit"
    monkeypatch.setattr(sample, "rows_of", lambda *_: len(ROWS))
    server = Server()
    previewed(server)
    assert ["LIMIT" in one for one in server.asked] == [False], "of a small table it is drawn from all"


@pytest.mark.parametrize(
    ("slow", "in_blocks", "found", "asked"),
    [(" LIMIT ", 0, [], 5), ("SYSTEM (0.6", 1, ["e1"], 2), ("SYSTEM (0.6", 0, ["e1", "e2"], 3)],
)
def test_a_preview_shows_what_there_is_of_a_type_that_takes_long_to_find(
    monkeypatch: pytest.MonkeyPatch, slow: str, in_blocks: int, found: list[str], asked: int
) -> None:
    """With fewer rows of the type than are wanted no LIMIT ends a reading early: it took 30 s, and was an error."""
    monkeypatch.setattr(sample, "rows_of", lambda *_: 1_000_000)
    server: Any = Server(in_blocks=in_blocks, slow=slow)
    assert previewed(server, count=2) == found
    assert len(server.asked) == asked and server.limit == ""


def test_a_preview_of_other_views_draws_from_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed the oldest rows, as Postgres has them in its first block."""
    monkeypatch.setattr(sample, "rows_of", lambda *_: 1_000_000)
    server: Any = Server(in_blocks=1)
    assert sorted(previewed(server, "every", 4)) == ["e1", "e2", "e3", "e4"]
    assert ["TABLESAMPLE" in one for one in server.asked] == [True, False] and "LIMIT" not in server.asked[1]


def test_the_column_of_the_type_is_asked_for_as_it_is_called_now() -> None:
    def said(view: View) -> str:
        text: sql.Composable = of_types(view, "t")
        return text.as_string(None)

    view = view_of("order_event")
    assert said(view) == """format('%s', "t"."aggregatetype") COLLATE "C" IN ('order')"""
    renamed = replace(OUTBOX.by_name["aggregatetype"], name="kind")
    before = replace(view, table=replace(OUTBOX, present=(("aggregatetype", renamed),)))
    assert '"t"."kind"' in said(before), "a generation goes on with the table as it was"
    corrected = replace(before, type_column="kind")
    assert '"t"."kind"' in said(corrected), "and the file says the new name"
    columns = tuple(renamed if one.name == "aggregatetype" else one for one in OUTBOX.columns)
    table = replace(OUTBOX, columns=columns, renamed=(("aggregatetype", "kind"),))
    followed = resolve_view(PIPELINE, Catalogue({table.qualified: table}), "order_event")
    assert '"t"."kind"' in said(followed)
