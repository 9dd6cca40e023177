"""A generation that goes on with a table as it was is held against the table as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import StateError
from cdc.pipeline import Pipeline, loads
from cdc.records.former import Former
from cdc.shapes import Shape
from cdc.view import View
from operations.explain.report import find_view
from operations.state.folder import register_of, state_dir
from operations.state.frozen import Frozen, freeze
from operations.state.shapes import remember_shapes
from operations.trace.report import _catalogue
from truth.altered import refuse_altered, stored
from truth.expected import digests, expected
from truth.rows import has_index, matching_rows, read_rows, rows_of_ids

ID = Column("id", "integer", "int4", nullable=False, ordinal=1)
BLOOD = Column("blood", "character varying(3)", "varchar", ordinal=2)
BORN = Column("born", "date", "date", ordinal=3)
WAS = Table("public", "patients", (ID, BLOOD, BORN), ("id",))
# In one transaction: RENAME blood TO blood_group, ALTER blood_group TYPE text, ALTER id TYPE bigint.
GROUP = replace(BLOOD, name="blood_group", type_name="text", base_type="text")
WIDE = replace(ID, type_name="bigint", base_type="int8")
NOW = replace(WAS, columns=(WIDE, GROUP, BORN))


def known(now: Table, was: Table = WAS) -> Table:
    """The table as a frozen generation knows it, above a catalogue of today."""
    return Frozen({was.qualified: was}).over(Catalogue({now.qualified: now})).tables[was.qualified]


PRICE = Column("price", "numeric(10,2)", "numeric", 10, 2, ordinal=4)
WIDER = replace(PRICE, type_name="numeric(14,4)", precision=14, scale=4)


@pytest.mark.parametrize(("documents", "shown"), [(True, "54.3713"), (False, None)])
def test_a_document_shows_all_digits_and_a_column_those_that_it_has_room_for(
    documents: bool, shown: str | None
) -> None:
    """A joined view's children were null, and its sum short, while the next generation was built."""
    was, now = (replace(WAS, columns=(*WAS.columns, price)) for price in (PRICE, WIDER))
    frozen = Frozen({was.qualified: was})
    table = frozen.over(Catalogue({now.qualified: now}), documents=documents).tables[was.qualified]
    row: dict[str, Any] = {"id": 1, "price": "54.3713"}
    Former(table).bring(row)
    assert row["price"] == shown
    assert (stored(table, "price") == table.by_name["price"]) is documents, "and verify compares what it is"


class Server:
    """A connection that notes what it is asked, and has one answer."""

    connection = None  # of Postgres, for the encoding

    def __init__(self, *rows: tuple[str | None, ...]) -> None:
        self.rows, self.asked = list(rows), list[str]()

    def cursor(self, **_options: Any) -> Server:
        return self

    transaction = cursor

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is open."""

    def execute(self, query: Any, _values: Any = None) -> Server:
        self.asked.append(query if isinstance(query, str) else query.as_string(None))
        return self

    def fetchmany(self, _size: int) -> list[tuple[str | None, ...]]:
        rows, self.rows = self.rows, []
        return rows

    def fetchone(self) -> tuple[str | None, ...] | None:
        return self.rows[0] if self.rows else None

    def __iter__(self) -> Iterator[tuple[str | None, ...]]:
        return iter(self.rows)


def test_its_columns_are_read_under_the_names_that_they_have_today() -> None:
    table = known(NOW)
    assert (stored(table, "blood"), stored(table, "born")) == (GROUP, BORN)
    server = Server(("1", "A+", None))
    (rows,) = read_rows(server, table)  # type: ignore[arg-type]
    assert rows == [{"id": "1", "blood": "A+", "born": None}]
    (asked,) = server.asked
    assert '"blood_group"' in asked and '"blood"' not in asked


def test_so_are_single_rows_and_those_that_are_joined() -> None:
    table = known(NOW)
    server = Server(("A+",))
    assert list(matching_rows(server, table, ["blood"], ["blood"], [("A+",)])) == [{"blood": "A+"}]  # type: ignore[arg-type]
    # In the type of today, too: cut to three characters, what is longer would be found nowhere.
    assert "::text AS" in server.asked[0] and 't."blood_group" = k."k0"' in server.asked[0]
    assert '"blood"' not in server.asked[0]
    view = View("patient", table, ("id",), (("id", "id"), ("blood", "blood")))
    server = Server(("1", "A+"))
    assert list(rows_of_ids(server, view, ["id", "blood"], ["1"])) == [[{"id": "1", "blood": "A+"}]]  # type: ignore[arg-type]
    assert "::int8" in server.asked[-1]


def test_an_index_is_looked_for_by_the_name_of_today() -> None:
    asked: list[Any] = []

    class Noting(Server):
        def execute(self, query: Any, values: Any = None) -> Server:
            asked.append(values[1])
            return self

    assert not has_index(Noting(), known(NOW), ["blood"])  # type: ignore[arg-type]
    assert asked == [["blood_group"]]


def test_a_document_is_what_the_generation_shows() -> None:
    view = View("patient", known(NOW), ("id",), (("id", "id"), ("blood", "blood_type")))
    found = list(expected(view, Server(("9000000000", "0 negative", None)), None))  # type: ignore[arg-type]
    assert [(one.key, one.document) for one in found] == [
        ("9000000000", b'{"id":9000000000,"blood_type":"0 negative"}')
    ]
    assert len(list(digests(view, found, ["document"]))) == 1


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ((ID, BORN), "column public.patients.blood has been dropped"),
        # Another one under its name is not it.
        ((ID, BORN, replace(BLOOD, ordinal=4)), "column public.patients.blood has been dropped"),
        (
            (ID, replace(GROUP, type_name="integer", base_type="int4"), BORN),
            r"column public.patients.blood was character varying\(3\), and is integer",
        ),
        ((ID, replace(GROUP, type_name="text[]", array=True), BORN), r"blood was .*, and is text\[\]"),
    ],
)
def test_what_postgres_can_not_tell_any_more_is_no_difference_but_said(columns: tuple[Column, ...], why: str) -> None:
    table = known(replace(NOW, columns=columns))
    view = View("patient", table, ("id",), (("id", "id"), ("blood", "blood")))
    server = Server(("1", "A+", None))
    with pytest.raises(StateError, match=why) as refused:
        next(expected(view, server, None))  # type: ignore[arg-type]
    assert not server.asked and "next generation" in str(refused.value)
    # A view that does not show it is compared, whatever became of it.
    other = View("birthday", table, ("id",), (("id", "id"), ("born", "born")))
    refuse_altered(other)
    (found,) = expected(other, Server(("1", None, "2000-01-01")), None)  # type: ignore[arg-type]
    assert found.document == b'{"id":1,"born":"2000-01-01"}'


def test_a_numeric_of_another_scale_is_another_text() -> None:
    price = Column("price", "numeric(8,2)", "numeric", 8, 2, ordinal=4)
    was = replace(WAS, columns=(*WAS.columns, price))
    view = View("bill", was, ("id",), (("price", "price"),))
    longer = replace(price, type_name="numeric(12,2)", precision=12)
    refuse_altered(replace(view, table=known(replace(NOW, columns=(*NOW.columns, longer)), was)))
    finer = replace(price, type_name="numeric(12,4)", precision=12, scale=4)
    with pytest.raises(StateError, match=r"was numeric\(8,2\), and is numeric\(12,4\)"):
        refuse_altered(replace(view, table=known(replace(NOW, columns=(*NOW.columns, finer)), was)))


def clinic(tmp_path: Path) -> Pipeline:
    return loads(
        f"""
version: 1
name: clinic
source: {{database: clinic, user: u, tables: [public.patients]}}
kafka: {{bootstrap: "localhost:1"}}
connect: {{url: "http://localhost:1"}}
views: {{patient: {{root: patients}}}}
sinks: {{search: {{type: elasticsearch, url: "http://127.0.0.1:1", view: patient}}}}
engine: {{state_dir: {tmp_path}}}
""",
        "clinic.yaml",
        {},
    )


def test_explain_goes_by_the_table_as_readers_see_it(tmp_path: Path) -> None:
    pipeline = clinic(tmp_path)
    folder = state_dir(pipeline) / "clinic"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "catalogue.json").write_text(Catalogue({NOW.qualified: NOW}).to_json())
    assert "blood_group" in dict(find_view(pipeline, "search", None, live=False).columns)
    freeze(register_of(pipeline, "search").generation(), WAS)
    view = find_view(pipeline, "search", None, live=False)
    assert "blood" in dict(view.columns) and stored(view.table, "blood") == GROUP


def test_explain_and_trace_go_by_the_table_as_it_was_seen_last(tmp_path: Path) -> None:
    """`run` goes on for months: a column that was renamed since its start is in what it keeps of shapes alone."""
    pipeline = clinic(tmp_path)
    remember_shapes(pipeline, {WAS.qualified: Shape(WAS, oid=1)})
    remember_shapes(pipeline, {WAS.qualified: Shape(NOW, since=9, oid=1, files="anew")})
    other = replace(WAS, name="once")
    remember_shapes(pipeline, {other.qualified: Shape(other, oid=2)})  # the file has it captured no more
    (state_dir(pipeline) / "clinic/catalogue.json").write_text(Catalogue({WAS.qualified: WAS}).to_json())
    explained = find_view(pipeline, "search", None, live=False)
    traced = _catalogue(pipeline).tables
    assert list(traced) == [WAS.qualified] and "blood_group" in dict(explained.columns)
    for table in (explained.table, traced[WAS.qualified]):
        assert (table.columns, table.renamed, table.since) == (NOW.columns, (("blood", "blood_group"),), 9)


def test_a_table_as_it_is_has_nothing_else_in_its_place() -> None:
    assert known(WAS).present == ()
    refuse_altered(View("patient", WAS, ("id",), (("blood", "blood"),)))
