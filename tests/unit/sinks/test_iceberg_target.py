"""A warehouse's tables behind the contract that every sink keeps: looked at, promoted, dropped."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from cdc.errors import ConfigError, SinkRefused
from sinks.contract import UNREADABLE, Held, Sink, Target
from sinks.factory import open_sink, open_target
from sinks.iceberg import catalogue
from sinks.iceberg.owners import GENERATION, MADE_BY
from sinks.iceberg.rows import ID_COLUMN, VERSION_COLUMN, held_documents, held_rows
from spark.warehouse.table import TablePlace

CATALOG, VIEW, OWNER = "hw_lake", "order", "shop/lake"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), (VERSION_COLUMN, pa.int64())]
)
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
MICROSECONDS = int(NOON.timestamp()) * 1_000_000
KEY = [("id", "int8")]


def rows(*found: tuple[int | None, int | None]) -> pa.Table:
    """Rows of (id, version)."""
    days = [NOON.date()] * len(found)
    ids, versions = [one for one, _ in found], [version for _, version in found]
    return pa.table([ids, days, [NOON] * len(found), versions], schema=SCHEMA)


def document(key: int | None) -> dict[str, Any]:
    return {"id": key, "day": 20455, "at": MICROSECONDS}


@pytest.fixture
def place(tmp_path: Path) -> dict[str, Any]:
    """A warehouse with two generations of a view."""
    part = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w"), namespace="shop")
    with catalogue.open_catalog(part, CATALOG) as opened:
        opened.create_namespace("shop")
        held = {1: rows((1, 8), (2, 16), (2, 24), (3, None), (None, 8)), 2: rows((9, 800))}
        for number, found in held.items():
            properties = {GENERATION: str(number), MADE_BY: f"{OWNER}/{VIEW}"}
            name = catalogue.table_name(part, VIEW, number)
            opened.create_table(name, SCHEMA, properties=properties).append(found)
    return {"type": "iceberg", "name": "lake", "catalog": CATALOG, **vars(part)}


def target(place: dict[str, Any], generation: int = 1, key: Any = KEY, owner: str = OWNER) -> Target:
    return open_target(place | {"targets": {VIEW: {"generation": generation, "key": key}}, "owner": owner})


def say(place: dict[str, Any], said: dict[str, str], *taken: str, name: str = VIEW) -> None:
    """Change what a table says of itself: properties that it gets, and such as it loses."""
    with (
        catalogue.open_catalog(SimpleNamespace(**place), CATALOG) as opened,
        opened.load_table(("shop", name)).transaction() as change,
    ):
        change.set_properties(said)
        change.remove_properties(*taken)


def there(place: dict[str, Any]) -> dict[str, int]:
    """Table -> its rows."""
    with catalogue.open_catalog(SimpleNamespace(**place), CATALOG) as opened:
        return {name[-1]: opened.load_table(name).scan().count() for name in opened.list_tables("shop")}


def test_versions_are_those_of_rows_that_are_there(place: dict[str, Any]) -> None:
    assert target(place).versions(VIEW, ["1", "2", "3", "7"]) == {"1": 8, "2": 24}
    assert target(place, 2).versions(VIEW, ["1", "9"]) == {"9": 800}


@pytest.mark.parametrize("key", [KEY, [("id", "numeric")]], ids=["looked up", "whole table read"])
def test_versions_read_no_more_than_key_and_version(
    place: dict[str, Any], key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a wide table that has to be read to its end, for one key, each column was read."""
    asked: list[set[str]] = []
    scan = Table.scan

    def noted(self: Table, *given: Any, **named: Any) -> Any:
        made = scan(self, *given, **named)
        asked.append(set(made.selected_fields))
        return made

    monkeypatch.setattr(Table, "scan", noted)
    looked = target(place, key=key)
    assert looked.versions(VIEW, ["1", "2", "3", "7"]) == {"1": 8, "2": 24}
    assert asked == [{"id", VERSION_COLUMN}]


def test_a_table_is_another_after_each_write(place: dict[str, Any]) -> None:
    looked: Any = target(place)
    before = looked.snapshot(VIEW)
    assert before is not None and before == looked.snapshot(VIEW) != target(place, 2).snapshot(VIEW)  # type: ignore[attr-defined]
    part = SimpleNamespace(**{name: place[name] for name in ("catalog_uri", "warehouse", "namespace")})
    with catalogue.open_catalog(part, CATALOG) as opened:
        opened.load_table(catalogue.table_name(part, VIEW)).append(rows((5, 8)))
    assert looked.snapshot(VIEW) != before
    with pytest.raises(SinkRefused):
        target(place, 3).snapshot(VIEW)  # type: ignore[attr-defined]


def test_it_is_a_target_and_takes_no_documents(place: dict[str, Any]) -> None:
    assert not isinstance(target(place), Sink)
    with pytest.raises(ConfigError, match="no document sink"):
        open_sink(place)


def test_every_row_is_scanned_with_its_version(place: dict[str, Any]) -> None:
    found = sorted(target(place).scan(VIEW), key=lambda held: (held.key, held.version))
    assert found == [
        Held("1", 8, (document(1),)),
        Held("2", 16, (document(2),)),
        Held("2", 24, (document(2),)),
        Held("3", UNREADABLE, (document(3),)),
        Held("null", 8, (document(None),)),
    ]
    assert [held.key for held in target(place, 2).scan(VIEW)] == ["9"]


@pytest.mark.parametrize("key", [KEY, [("id", "numeric")]], ids=["looked up", "whole table read"])
def test_rows_are_looked_up_and_a_key_that_is_there_twice_has_both(place: dict[str, Any], key: Any) -> None:
    found = target(place, key=key).get(VIEW, ["2", "1", "77"])
    assert found == {"2": Held("2", 24, (document(2),) * 2), "1": Held("1", 8, (document(1),))}
    assert target(place, key=key).get(VIEW, ["no number"]) == {}
    assert target(place, key=key).get(VIEW, []) == {}


def test_a_sample_is_of_what_is_there_and_follows_its_seed(place: dict[str, Any]) -> None:
    assert {held.key for held in target(place).sample(VIEW, 100, 1)} == {"1", "2", "3", "null"}
    some = [[held.key for held in target(place).sample(VIEW, 2, seed)] for seed in range(12)]
    assert some == [[held.key for held in target(place).sample(VIEW, 2, seed)] for seed in range(12)]
    assert len({tuple(one) for one in some}) > 1 and all(1 <= len(one) <= 2 for one in some)


def test_promoted_told_apart_and_dropped(place: dict[str, Any]) -> None:
    first, second, third = (target(place, number) for number in (1, 2, 3))
    assert [one.there(VIEW) for one in (first, second, third)] == [True, True, False]
    assert first.living(VIEW) == second.living(VIEW) == 1
    assert third.numbered([VIEW, "other"]) == {2: {VIEW}} and third.numbered(["other"]) == {}
    second.promote(VIEW, 1)
    second.promote(VIEW, 1)
    assert third.numbered([VIEW]) == {1: {VIEW}}
    assert first.living(VIEW) == 2 and first.there(VIEW)
    with pytest.raises(SinkRefused):
        third.promote(VIEW, 2)
    first.drop(VIEW)
    first.drop(VIEW)
    assert [one.there(VIEW) for one in (first, second)] == [False, True]
    second.drop(VIEW)
    assert second.living(VIEW) is None
    second.close()


# What a table in the way says of itself; the last one says nothing.
OTHERS = {
    "a pipeline": ({MADE_BY: "shop_test/lake/order"}, ()),
    "a sink": ({MADE_BY: "shop/other/order"}, ()),
    "a view": ({MADE_BY: "shop/lake/order__g2"}, ()),
    "a tool": ({}, (MADE_BY, GENERATION)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_table_of_others_is_not_there_and_stays(
    place: dict[str, Any], caplog: pytest.LogCaptureFixture, other: str
) -> None:
    """A copy of a file under another name could not write, but its `drop` removed the first one's tables."""
    said, taken = OTHERS[other]
    say(place, {catalogue.LEASE: "7", **said}, *taken)
    one = target(place)
    assert not one.there(VIEW) and one.claimed(VIEW) is None and one.living(VIEW) is None
    one.drop(VIEW)
    assert there(place) == {"order": 5, "order__g2": 1}
    assert "shop.order is not this sink's" in caplog.text and "stays" in caplog.text


@pytest.mark.parametrize("other", OTHERS)
def test_readers_of_others_are_not_led_to_our_rows(place: dict[str, Any], other: str) -> None:
    """And what others made is no generation to be promoted: neither is what stands where it would have been seen."""
    said, taken = OTHERS[other]
    say(place, said, *taken)
    for number in (1, 2):
        with pytest.raises(SinkRefused, match=r"readers of shop\.order see a table that .* has made"):
            target(place, number).promote(VIEW, 1)
    assert there(place) == {"order": 5, "order__g2": 1}
    target(place, 2).drop(VIEW)
    assert there(place) == {"order": 5}, "what is ours goes"


def test_what_others_have_built_is_not_promoted(place: dict[str, Any]) -> None:
    say(place, {MADE_BY: "shop_test/lake/order"}, name="order__g2")
    for _ in range(2):
        with pytest.raises(SinkRefused, match=r"order__g2 is there, but shop_test/lake/order has made it"):
            target(place, 2).promote(VIEW, 1)
        with catalogue.open_catalog(SimpleNamespace(**place), CATALOG) as opened:  # as in the middle of two renames
            if opened.table_exists("shop.order"):
                opened.rename_table("shop.order", "shop.order__g1")
    assert there(place) == {"order__g1": 5, "order__g2": 1}
    target(place, 1).promote(VIEW, 1)
    assert there(place) == {"order": 5, "order__g2": 1}


def test_ours_is_found_behind_another_one_of_its_number(place: dict[str, Any]) -> None:
    """Readers' name was taken by another tool, whose table counts as the first generation."""
    with catalogue.open_catalog(SimpleNamespace(**place), CATALOG) as opened:
        opened.rename_table("shop.order", "shop.order__g1")
        opened.create_table("shop.order", SCHEMA).append(rows((7, 8), (8, 8)))
    assert target(place).there(VIEW)
    target(place).drop(VIEW)
    assert there(place) == {"order": 2, "order__g2": 1}


def test_one_of_before_it_was_told_whose_they_are_is_ours(place: dict[str, Any]) -> None:
    for name in ("order", "order__g2"):
        say(place, {}, MADE_BY, name=name)
    target(place, 2).promote(VIEW, 1)
    target(place, 1).drop(VIEW)
    assert there(place) == {"order": 1} and target(place, 2).living(VIEW) == 2


def test_names_that_others_have_are_found_and_looking_makes_nothing(place: dict[str, Any], tmp_path: Path) -> None:
    part = SimpleNamespace(**place)
    assert catalogue.of_others(part, CATALOG, [VIEW, "none"], OWNER) == {}
    assert catalogue.of_others(part, CATALOG, [VIEW, "none"], "shop_test/lake") == {VIEW: "shop/lake/order"}
    say(place, {}, GENERATION, MADE_BY)
    assert catalogue.of_others(part, CATALOG, [VIEW], OWNER) == {VIEW: "another tool"}
    part.catalog_uri = str(tmp_path / "new" / "c.db")
    assert catalogue.of_others(part, CATALOG, [VIEW], OWNER) == {} and not (tmp_path / "new").exists()


def test_rows_of_what_is_made_of_events_are_documents_as_other_sinks_hold_them() -> None:
    """Moments wherever they stand, of years that Python's own end before; what is null stays so; no column of ours."""
    moment, far = pa.timestamp("us", "UTC"), 253_402_300_800_000_000
    one = pa.struct([("at", moment), ("day", pa.date32()), ("n", pa.int32())])
    kinds = {"at": moment, "local": pa.timestamp("us"), "then": pa.list_(one), "seen": pa.map_(pa.string(), moment)}
    kinds |= {"sum": pa.decimal128(10, 2), ID_COLUMN: pa.string(), VERSION_COLUMN: pa.int64()}
    values: list[dict[str, Any]] = [
        {"at": far, "local": NOON.replace(tzinfo=None), "then": [{"at": NOON, "day": NOON.date(), "n": 1}, None]},
        {"then": None, "seen": [("größer", NOON)], "sum": Decimal("1.50")},
    ]
    arrays = [pa.array([row.get(name) for row in values], kind) for name, kind in list(kinds.items())[:-2]]
    arrays += [pa.array(["a|b", "c"]), pa.array([8, None])]
    batch = pa.RecordBatch.from_arrays(arrays, list(kinds))
    nothing = {"at": None, "local": None, "then": None, "seen": None, "sum": None}
    noon = "2026-01-02T12:00:00"
    first = {
        "at": "+10000-01-01T00:00:00Z",
        "local": noon,
        "then": [{"at": f"{noon}Z", "day": noon[:10], "n": 1}, None],
    }
    second = {"seen": {"größer": f"{noon}Z"}, "sum": "1.50"}
    for whole in (batch, pa.concat_batches([batch, batch]).slice(2)):  # of a part of an array too
        found = [(held.key, held.version, orjson.loads(held.document)) for held in held_documents(whole, [ID_COLUMN])]
        assert found == [("a|b", 8, nothing | first), ("c", UNREADABLE, nothing | second)]


def test_keys_are_texts_as_in_every_other_sink() -> None:
    batch = rows((1, 8)).to_batches()[0]
    assert [held.key for held in held_rows(batch, ["day"])] == ["2026-01-02"]
    assert [held.key for held in held_rows(batch, ["id", "day"])] == ["1|2026-01-02"]


@pytest.mark.parametrize(
    ("kind", "column", "bits"), [("int8", pa.int64(), 63), ("int4", pa.int32(), 31), ("int2", pa.int32(), 15)]
)
def test_the_least_and_the_greatest_number_of_a_type_are_keys(
    tmp_path: Path, kind: str, column: pa.DataType, bits: int
) -> None:
    """A row that is not found is taken for gone: `verify` calls the table equal that has it, and no repair takes it."""
    part = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w"), namespace="shop")
    schema, ends = pa.schema([("id", column), (VERSION_COLUMN, pa.int64())]), [-(1 << bits), (1 << bits) - 1]
    with catalogue.open_catalog(part, CATALOG) as opened:
        opened.create_namespace("shop")
        opened.create_table(catalogue.table_name(part, VIEW), schema).append(pa.table([ends, [8, 16]], schema=schema))
    looked = target({"type": "iceberg", "name": "lake", "catalog": CATALOG, **vars(part)}, key=[("id", kind)])
    beyond = [str(-(1 << 63) - 1), str(1 << 63)]
    for key, version in zip(map(str, ends), (8, 16), strict=True):
        assert looked.versions(VIEW, [key]) == looked.versions(VIEW, [key, *beyond]) == {key: version}
    assert looked.versions(VIEW, beyond) == {}


@pytest.mark.parametrize("kind", ["text", "uuid"])
def test_a_row_without_a_key_is_found_beside_the_text_of_that_name(tmp_path: Path, kind: str) -> None:
    part = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w"), namespace="shop")
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), (VERSION_COLUMN, pa.int64())])
    found = pa.table([["x", None, "null", "y"], ["null", "b", "b", None], [8, 16, 24, 32]], schema=schema)
    with catalogue.open_catalog(part, CATALOG) as opened:
        opened.create_namespace("shop")
        opened.create_table(catalogue.table_name(part, VIEW), schema).append(found)
    place = {"type": "iceberg", "name": "lake", "catalog": CATALOG, **vars(part)}
    one = target(place, key=[("a", kind)])
    assert {key: len(held.document) for key, held in one.get(VIEW, ["null", "x"]).items()} == {"null": 2, "x": 1}
    both = target(place, key=[("a", kind), ("b", kind)])
    assert both.versions(VIEW, ["y|null", "null|b", "x|b"]) == {"y|null": 32, "null|b": 24}


def test_who_is_not_let_in_learns_nothing_of_a_table(place: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation that is filled was given up as gone while the catalogue took no password."""
    looked, part = target(place), SimpleNamespace(**place)
    spark: Any = TablePlace(part, CATALOG, VIEW, 1, 0, OWNER)
    assert looked.there(VIEW) and looked.size(VIEW) > 0 and spark.there()
    assert not target(place, 3).there(VIEW) and target(place, 3).size(VIEW) == 0

    @contextmanager
    def closed(*_: Any) -> Iterator[Any]:
        raise SinkRefused("the catalogue does not let us in")
        yield

    monkeypatch.setattr(catalogue, "open_catalog", closed)
    for ask in (partial(looked.there, VIEW), partial(looked.size, VIEW), spark.there):
        with pytest.raises(SinkRefused, match="does not let us in"):
            ask()


def test_a_catalogue_that_was_restored_from_a_copy_shows_the_claim_of_then(
    place: dict[str, Any], tmp_path: Path
) -> None:
    """It lacked what was applied since, and the flow went on behind that without a word."""
    assert target(place).oldest_claim(VIEW) is None
    say(place, {catalogue.LEASE: "5"})
    assert target(place).oldest_claim(VIEW) == 5
    copy = shutil.copy(tmp_path / "c.db", tmp_path / "copy.db")
    say(place, {catalogue.LEASE: "9"})
    assert target(place).oldest_claim(VIEW) == target(place).claimed(VIEW) == 9
    shutil.copy(copy, tmp_path / "c.db")
    assert target(place).oldest_claim(VIEW) == 5 and target(place, 2).oldest_claim(VIEW) is None
