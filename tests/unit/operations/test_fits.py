"""What of a topic's records must fit its table, and when one that does not is given up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, DecodeError, ShapeUnknown
from cdc.pipeline import loads
from cdc.records.debezium_json import Decoder, Fit
from cdc.shapes import Shape, Shapes
from cdc.view import View
from operations.opened import Opened
from operations.run.fits import fits_of, read_since
from operations.run.flows import spec_of
from operations.state.folder import register_of
from operations.state.frozen import Frozen
from operations.state.shapes import remember_shapes

ID = Column("id", "integer", "int4", nullable=False, ordinal=1)
CODE = Column("code", "text", "text", ordinal=2)
HIVES = Table("club", "hives", (ID, CODE), ("id",))
VIEW = View("slim", HIVES, ("id",), (("id", "id"),))


def fit(frozen: Frozen, *, values: bool = True) -> Fit:
    spec: Any = SimpleNamespace(topics={"t": ("slim",)}, tables={"t": HIVES}, views={"slim": VIEW})
    return fits_of(spec, Catalogue({"club.hives": HIVES}, lsn=50), frozen, values=values)["t"]


def test_a_table_that_a_generation_goes_on_with_as_it_was_may_change_once_more() -> None:
    """Its values are read as they were when it was looked at last: one that does not fit waits for the next look."""
    frozen = fit(Frozen({"club.hives": HIVES}))
    decoder = Decoder(HIVES, fit=frozen)
    event = b'{"op":"u","after":{"id":1,"other":2},"source":{"table":"hives","schema":"club","lsn":60,"sequence":null,'
    change = decoder.decode(b'{"id":1}', event + b'"snapshot":"false","ts_ms":1}}', "t", 0, 7)  # names do not matter
    refused = DecodeError("record t/0/7: expected text, got int", means="", fix="")
    with pytest.raises(ShapeUnknown, match="expected text, got int"):
        decoder.doubt(change, refused)
    decoder.doubt(change._replace(position=50), refused)  # that is known: it is given up


def test_of_other_tables_names_matter_too() -> None:
    assert fit(Frozen()).used == {"id"}
    assert not fit(Frozen({"club.hives": HIVES}), values=False).values


def test_a_record_is_given_up_only_if_the_table_was_read_again_for_what_the_views_use() -> None:
    """A column that nobody shows was retyped: its table is not read again, and a bad value of before had no letter."""
    number = replace(CODE, type_name="integer", base_type="int4")
    wider = replace(ID, type_name="bigint", base_type="int8")
    first = Shape(HIVES, 0, 1, "a")
    second = Shape(replace(HIVES, columns=(wider, CODE)), 100, 1, "b")
    third = Shape(replace(HIVES, columns=(wider, number)), 200, 1, "c")
    known = Shapes({"club.hives": (first, second, third)})
    table = known.told_to(Catalogue({"club.hives": third.table})).tables["club.hives"]
    assert table.since == 200

    def since(*shown: str, table: Table = table) -> int:
        view = View("slim", table, ("id",), tuple((name, name) for name in shown))
        spec: Any = SimpleNamespace(topics={"t": ("slim",)}, tables={"t": table}, views={"slim": view})
        return read_since(spec, known)["t"].since

    assert (since("id"), since("id", "code")) == (100, 200)
    assert since("id", "code", table=replace(table, since=100)) == 100  # who goes by an older look knows no more
    assert since("id", table=replace(HIVES, since=0)) == 0


def test_a_record_is_not_given_up_for_files_that_were_written_anew_long_after_the_change() -> None:
    text = replace(CODE, type_name="varchar", base_type="varchar")
    first, second = Shape(HIVES, 0, 1, "a"), Shape(replace(HIVES, columns=(ID, text)), 100, 1, "a")
    known = Shapes({"club.hives": (first,)}).with_newer({"club.hives": second})[0]
    known = known.with_newer({"club.hives": replace(second, files="vacuumed")})[0]
    table = replace(second.table, since=100)  # as a later change of another column has it
    spec: Any = SimpleNamespace(
        topics={"t": ("slim",)}, tables={"t": table}, views={"slim": View("slim", table, ("id",), (("code", "code"),))}
    )
    assert read_since(spec, known)["t"].since == 0


FILE = """
version: 1
name: p
source: {database: d, user: u, tables: [club.hives]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views: {slim: {root: club.hives}}
sinks: {search: {type: elasticsearch, url: "http://127.0.0.1:1", view: slim, mapping: {gone: {type: keyword}}}}
engine: {state_dir: STATE}
"""


def test_the_work_of_a_generation_goes_by_what_was_read_again_and_does_without_a_field_that_has_gone(
    tmp_path: Path,
) -> None:
    pipeline = loads(FILE.replace("STATE", str(tmp_path)), "p.yaml", {})
    (tmp_path / "p").mkdir()
    number = replace(HIVES, columns=(ID, replace(CODE, type_name="integer", base_type="int4")))
    remember_shapes(pipeline, {"club.hives": Shape(HIVES, 0, 1, "a")})
    shapes = remember_shapes(pipeline, {"club.hives": Shape(number, 100, 1, "b")})
    catalogue = shapes.told_to(Catalogue({"club.hives": number}))
    generation = register_of(pipeline, "search").generation(1)
    for view, since in ((VIEW, 0), (View.identity(number, "slim"), 100)):
        build = Opened(pipeline, generation, [view], token=1)
        (table,) = spec_of(build, catalogue, cast(Any, None), 0).tables.values()
        assert table.since == since
    with pytest.raises(ConfigError, match="'gone' that none of its views has"):  # one that is made of the file
        spec_of(replace(build, definition={}), catalogue, cast(Any, None), 0)


EVENT = (
    b'{"op":"u","after":%s,"source":{"table":"hives","schema":"club","txId":77,"lsn":960,'
    b'"sequence":"[\\"900\\",\\"960\\"]","snapshot":"false","ts_ms":1}}'
)


@pytest.mark.parametrize("lsn", [1000, 0])
def test_what_a_transaction_wrote_that_was_open_when_the_table_was_looked_at_is_newer(lsn: int) -> None:
    """It had renamed a column, and written, before the look that could not see it: the column was null for good."""
    spec: Any = SimpleNamespace(
        topics={"t": ("slim",)}, tables={"t": HIVES}, views={"slim": replace(VIEW, columns=(("code", "code"),))}
    )
    known = Catalogue({"club.hives": HIVES}, lsn=lsn, unseen=frozenset((77,)))
    found = fits_of(spec, known, Frozen(), values=True)["t"]
    decoder = Decoder(HIVES, fit=found)
    with pytest.raises(ShapeUnknown, match="has no column code"):
        decoder.decode(b'{"id":1}', EVENT % b'{"id":1,"label":"new"}', "t", 0, 7)
    with pytest.raises(ShapeUnknown, match="its key lacks the column id"):
        decoder.decode(b'{"number":1}', EVENT % b'{"id":1,"code":"new"}', "t", 0, 7)
    change = decoder.decode(b'{"id":1}', EVENT % b'{"id":1,"code":5}', "t", 0, 7)
    with pytest.raises(ShapeUnknown, match="expected text, got int"):
        decoder.doubt(change, DecodeError("record t/0/7: expected text, got int", means="", fix=""))
    seen = Decoder(HIVES, fit=replace(found, unseen=frozenset((76, 78))))
    assert seen.decode(b'{"id":1}', EVENT % b'{"id":1,"label":"new"}', "t", 0, 7).after == {"id": 1, "label": "new"}
    names_alone = Decoder(HIVES, fit=replace(found, values=False))
    names_alone.doubt(change, DecodeError("record t/0/7: expected text, got int", means="", fix=""))
    assert Catalogue.from_json(known.to_json()) == known, "the database may be away at the next start"
