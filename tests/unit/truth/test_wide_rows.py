"""Rows of megabytes: what is fetched at once has a bound in text, from the first row on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.catalogue import Column, Table
from cdc.paging import MOST_BYTES
from cdc.view import View
from operations.holding import Holding
from sinks.contract import Held
from truth.pages import Pages
from truth.rows import FETCH, FETCHED_CHARS, LOOKED_UP, Row, read_rows, rows_of_ids

MB = 1 << 20
TABLE = Table(
    "public",
    "t",
    (
        Column("id", "integer", "int4", nullable=False, ordinal=1),
        Column("body", "text", "text", ordinal=2),
    ),
    ("id",),
)
VIEW = View.identity(TABLE)


class Server:
    """A connection to a table whose texts are so long; it notes how much was fetched at once."""

    connection = None  # of Postgres, for the encoding

    def __init__(self, lengths: list[int]) -> None:
        self.texts = ["x" * length for length in lengths]
        self.at, self.fetched = 0, list[int]()

    @contextmanager
    def cursor(self, **_options: Any) -> Iterator[Server]:
        yield self

    transaction = cursor

    def execute(self, query: Any) -> Iterator[tuple[str, str]]:
        text = query.as_string(None)
        ids = text.split("'{")[1].split("}'")[0].replace('"', "").split(",") if "unnest" in text else []
        found = [(one, self.texts[int(one)]) for one in ids if int(one) < len(self.texts)]
        if ids:
            self.fetched.append(sum(len(body) for _, body in found))
        return iter(found)

    def fetchmany(self, size: int) -> list[tuple[str, str]]:
        found = [(str(at), body) for at, body in enumerate(self.texts)][self.at : self.at + size]
        self.at += size
        self.fetched.append(sum(len(body) for _, body in found))
        return found


def read(server: Server) -> list[list[Row]]:
    return list(read_rows(cast(Any, server), TABLE))


def looked_up(server: Server) -> list[list[Row]]:
    ids = [str(at) for at in range(len(server.texts))]
    return list(rows_of_ids(cast(Any, server), VIEW, ["id", "body"], ids))


@pytest.mark.parametrize("reading", [read, looked_up])
@pytest.mark.parametrize("lengths", [[3 * MB] * 120, [*([10] * 40), *([3 * MB] * 80)]])
def test_rows_of_3_mb_are_fetched_a_few_at_a_time(reading: Any, lengths: list[int]) -> None:
    """A thousand came with the first page, and five thousand with one look-up."""
    server = Server(lengths)
    pages = reading(server)
    assert [row["id"] for page in pages for row in page] == [str(at) for at in range(len(lengths))]
    assert max(server.fetched) <= 2 * MOST_BYTES
    assert max(server.fetched[10:]) <= FETCHED_CHARS
    assert max(sum(len(row["body"] or "") for row in page) for page in pages[1:]) <= 2 * FETCHED_CHARS


@pytest.mark.parametrize("reading", [read, looked_up])
def test_small_ones_come_by_thousands_and_in_no_more_pages(reading: Any) -> None:
    """Spark is asked once a page."""
    server = Server([10] * 30_000)
    pages = reading(server)
    assert sum(map(len, pages)) == 30_000
    assert all(FETCH <= len(page) <= 2 * FETCH for page in pages[:-1]) and len(server.fetched) <= 20


def test_ids_that_no_row_has_are_looked_up_by_thousands_too() -> None:
    server = Server([])
    assert list(rows_of_ids(cast(Any, server), VIEW, ["id", "body"], [str(at) for at in range(2 * LOOKED_UP)])) == []
    assert len(server.fetched) <= 15


def test_a_page_of_large_roots_has_fewer_of_them() -> None:
    """Two thousand, however large they are."""
    pages = Pages.__new__(Pages)
    pages.size, pages._paged = 2_000, []
    pages._assembly = cast(Any, SimpleNamespace(documents=lambda page: [(row["id"], row) for row in page]))
    body = "x" * (3 * MB)
    large = [{"id": str(at), "body": body} for at in range(100)]
    found = list(pages.documents([large]))
    assert [key for page in found for key, _ in page] == [row["id"] for row in large]
    assert max(map(len, found)) * 3 * MB <= MOST_BYTES + 3 * MB
    small: list[Row] = [{"id": str(at), "body": None} for at in range(5_000)]
    assert [len(page) for page in pages.documents([small])] == [2_000, 2_000, 1_000]


class Target:
    """A sink of documents of one size; keys that are no numbers have none."""

    def __init__(self, size: int) -> None:
        self.document, self.asked = b'{"x":"%s"}' % (b"x" * size), list[int]()

    def get(self, _view: str, keys: list[str]) -> dict[str, Held]:
        self.asked.append(len(keys))
        return {key: Held(key, 1, self.document) for key in keys if key.isdigit()}


@pytest.mark.parametrize(
    ("keys", "size", "warehouse", "most", "times"),
    [
        ([str(at) for at in range(60)], 2 * MB, False, 2, 60),
        ([str(at) for at in range(2_000)], 10, False, 1_024, 11),
        (["gone"] * 2_000, 2 * MB, False, 1_024, 11),
        ([str(at) for at in range(60)], 10, True, 60, 1),
    ],
)
def test_what_is_held_is_looked_at_by_as_many_as_fit(
    keys: list[str], size: int, warehouse: bool, most: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand documents were held for the digests of them; of a table a part costs as much as all."""
    target = Target(size)
    monkeypatch.setattr("operations.holding.open_target", lambda _: target)
    monkeypatch.setattr("operations.holding.sink_config", lambda *_: None)
    monkeypatch.setattr(Holding, "_holds", lambda _self, held: len(held.document))
    pipeline = SimpleNamespace(name="p")
    opened = SimpleNamespace(number=1, token=1, sink="s", part=None, pipeline=pipeline, warehouse=warehouse)
    holding = Holding(cast(Any, opened), VIEW)
    assert holding.get(keys).keys() == {key for key in keys if key.isdigit()}
    assert max(target.asked) <= most and len(target.asked) <= times
