"""Which of a key's entries stands, and that every record is accounted for."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.catalogue import Column
from cdc.errors import ShapeUnknown
from cdc.records.debezium_json import Fit
from cdc.records.placeholders import TEXT
from cdc.view import View
from operations.records.newest import Newest, Record, take
from operations.records.standing import Standing
from sinks.contract import UNVERSIONED, Item
from spark.reading.entries import Entry, EntryDecoder, newer
from spark.reading.spec import unpack
from tests.support.entry_cases import SPEC, TABLE, entry, event, records
from tests.support.sinks import one_by_one


def as_items(entries: list[Entry]) -> list[Item]:
    return [Item(entry.id, entry.version, entry.document) for entry in entries]


def decode(*pairs: tuple[bytes | None, bytes | None]) -> tuple[dict[str, Entry], int]:
    decoded = EntryDecoder(SPEC).decode(records(*pairs))
    assert decoded.records == len(pairs)
    return {entry.id: entry for entry in decoded.entries}, len(decoded.letters)


def test_the_newest_position_stands_and_a_tie_goes_to_the_later_offset() -> None:
    assert newer(entry(5, 1), entry(7, 2), tombstone=False).version == 7
    assert newer(entry(7, 1), entry(5, 2), tombstone=False).version == 7
    assert newer(entry(7, 1, b"a"), entry(7, 2, b"b"), tombstone=False).document == b"b"


def test_200_changes_to_one_row_are_one_entry() -> None:
    entries, letters = decode(*(event(1, f"v{n}", 100 + n) for n in range(200)))
    assert (len(entries), letters) == (1, 0)
    assert orjson.loads(entries["1"].document or b"") == {"id": 1, "v": "v199"}
    assert entries["1"].version == 299


def test_a_delete_keeps_its_position_through_its_tombstone() -> None:
    key, value = event(1, None, 50, "d")
    entries, _ = decode(event(1, "a", 40), (key, value), (key, None))
    assert (entries["1"].version, entries["1"].document) == (50, None)


def test_a_lone_tombstone_deletes_whatever_is_there() -> None:
    key, _ = event(1, "a", 1)
    entries, _ = decode((key, None))
    assert (entries["1"].version, entries["1"].document) == (UNVERSIONED, None)


def test_a_tombstone_without_its_delete_removes_an_older_upsert_of_the_batch_and_what_the_sink_may_hold() -> None:
    """An earlier attempt may have written version 45, whose record, and the delete's, were compacted meanwhile."""
    key, value = event(1, "a", 40)
    found = EntryDecoder(SPEC).decode(records((key, value), (key, None))).entries
    assert [(entry.version, entry.document) for entry in found] == [(40, None), (UNVERSIONED, None)]
    assert one_by_one({"1": (45, b"{}")}, as_items(found)) == {"1": (45, None)}
    assert one_by_one({}, as_items(found)) == {"1": (40, None)}


def test_a_tombstone_that_is_not_the_deletes_own_may_mean_a_later_delete() -> None:
    """Created and deleted again between the delete at offset 1 and the tombstone at 9; compacted since."""
    (key, deleted), far = event(1, None, 50, "d"), [event(2, "b", 60)] * 7
    found = EntryDecoder(SPEC).decode(records(event(2, "b", 1), (key, deleted), *far, (key, None))).entries
    assert one_by_one({"1": (55, b"{}")}, as_items(found))["1"] == (55, None)


def test_a_row_that_comes_back_after_its_tombstone_stands() -> None:
    key, value = event(1, None, 50, "d")
    entries, _ = decode((key, value), (key, None), event(1, "again", 60, "c"))
    assert orjson.loads(entries["1"].document or b"")["v"] == "again"


def test_a_row_that_comes_back_after_a_lone_tombstone_stands() -> None:
    key, value = event(1, "a", 40)
    found = EntryDecoder(SPEC).decode(records((key, value), (key, None), event(1, "again", 60, "c"))).entries
    assert [(entry.version, entry.document is None) for entry in found] == [(60, False)]


def test_what_is_no_event_becomes_a_letter_and_the_rest_goes_on() -> None:
    entries, letters = decode((b'{"id":1}', b"no json"), event(2, "b", 10))
    assert (list(entries), letters) == (["2"], 1)


def test_a_spec_survives_the_way_to_an_executor() -> None:
    assert unpack(SPEC.pack()).views["t"].table == TABLE
    assert unpack(SPEC.pack()) is unpack(SPEC.pack())


FITS = {"p.public.t": Fit(50, frozenset(("id", "v")), all_columns=True)}


def with_row(row: dict[str, object], lsn: int) -> tuple[bytes, bytes]:
    key, value = event(1, "a", lsn)
    changed = orjson.loads(value)
    changed["after"] = row
    return key, orjson.dumps(changed)


def test_fault_25_a_record_that_is_newer_than_what_is_known_of_its_table_waits() -> None:
    decoder = EntryDecoder(replace(SPEC, fits=FITS))
    more, less = {"id": 1, "v": "a", "added": 1}, {"id": 1, "renamed": "a"}
    (entry,) = decoder.decode(records(with_row(more, 50))).entries
    assert orjson.loads(entry.document or b"") == {"id": 1, "v": "a"}
    with pytest.raises(ShapeUnknown, match=r"record p\.public\.t/0/0 of public\.t has added besides"):
        decoder.decode(records(with_row(more, 51)))
    with pytest.raises(ShapeUnknown, match="has no column v, has renamed besides"):
        decoder.decode(records(with_row(less, 51)))
    assert EntryDecoder(SPEC).decode(records(with_row(more, 51))).entries  # one that was not told waits for nothing


NUMBER = replace(TABLE.columns[1], type_name="timestamp with time zone", base_type="timestamptz")
TIMED = replace(TABLE, columns=(TABLE.columns[0], NUMBER))


def timed(**fit: Any) -> EntryDecoder:
    fits = {"p.public.t": replace(FITS["p.public.t"], **fit)}
    return EntryDecoder(replace(SPEC, views={"t": View.identity(TIMED)}, tables={"p.public.t": TIMED}, fits=fits))


def test_a_newer_value_that_does_not_fit_waits_until_the_table_was_looked_at() -> None:
    """Between a migration and the look that finds it, what was good became a letter, and the row was missing."""
    assert len(timed().decode(records(event(1, "no time", 50))).letters) == 1  # of a shape that is known: it is bad
    with pytest.raises(
        ShapeUnknown, match=r"record p\.public\.t/0/0 of public\.t .*another shape by now, with which `run` goes on by"
    ):
        timed().decode(records(event(1, "no time", 51)))
    # Looked at, and nothing was new: it is what it is. A column whose values never fit must not stop its flow for ever.
    assert len(timed(values=False).decode(records(event(1, "no time", 51))).letters) == 1


def test_a_newer_key_that_does_not_fit_waits_too() -> None:
    key, value = event(1, "a", 51)
    other = orjson.dumps({"code": "x"}), value
    with pytest.raises(ShapeUnknown, match="its key lacks the column id"):
        EntryDecoder(replace(SPEC, fits=FITS)).decode(records(other))
    (letter,) = EntryDecoder(SPEC).decode(records(other)).letters
    assert "its key lacks the column id: the table's key was, or is by now, another one" in letter.reason
    (letter,) = EntryDecoder(replace(SPEC, fits=FITS)).decode(records((other[0], None))).letters  # it says no position
    assert key and "its key lacks the column id" in letter.reason


def test_columns_that_the_views_do_not_use_are_not_waited_for() -> None:
    fits = {"p.public.t": Fit(50, frozenset(("id",)))}
    decoder = EntryDecoder(replace(SPEC, fits=fits))
    assert decoder.decode(records(with_row({"id": 1, "renamed": "a"}, 51))).entries


def test_a_record_of_before_a_rename_is_read_by_the_present_name() -> None:
    renamed = replace(TABLE, columns=(TABLE.columns[0], replace(TABLE.columns[1], name="w")), renamed=(("v", "w"),))
    spec = replace(SPEC, views={"t": View.identity(renamed)}, tables={"p.public.t": renamed}, fits=FITS)
    (entry,) = EntryDecoder(spec).decode(records(event(1, "a", 40))).entries
    assert orjson.loads(entry.document or b"") == {"id": 1, "w": "a"}


def test_a_value_of_before_its_column_was_retyped_is_no_letter_but_waits_for_the_row_that_is_read_again() -> None:
    table = replace(TIMED, since=60)
    spec = replace(SPEC, views={"t": View.identity(table)}, tables={"p.public.t": table})
    old = EntryDecoder(spec).decode(records(event(1, "no time", 59)))
    assert (old.entries, old.letters) == ([], [])
    assert len(EntryDecoder(spec).decode(records(event(1, "no time", 60))).letters) == 1


def test_a_row_of_before_a_column_was_retyped_that_its_view_does_not_use_is_there() -> None:
    """Nobody reads the table again for such a column: the record was thrown away, without a letter."""
    table = replace(TIMED, since=60)
    view = View("t", table, ("id",), (("id", "id"),), where="id > 0")
    spec = replace(SPEC, views={"t": view}, tables={"p.public.t": table})
    found = EntryDecoder(spec, typed=True).decode(records(event(1, "no time", 59), event(2, "no time", 61)))
    assert [entry.row for entry in found.entries] == [(1, None), (2, None)] and not found.letters
    for more in ({"where": "V IS NULL"}, {"fields": {"all": "struct(*)"}}):
        spec = replace(SPEC, views={"t": replace(view, **more)}, tables={"p.public.t": table})
        assert len(EntryDecoder(spec, typed=True).decode(records(event(1, "no time", 61))).letters) == 1


def lacking(view: View) -> tuple[list[tuple[Any, ...]], int]:
    """Typed rows and letters of an UPDATE that left the large ``v`` alone, under ``policy.toast: allow``."""
    spec = replace(SPEC, views={"t": view}, tables={"p.public.t": LARGE})
    key, value = event(1, TEXT, 40)
    whole = orjson.loads(value)
    whole["after"]["n"] = 7
    decoded = EntryDecoder(spec, typed=True).decode(records((key, orjson.dumps(whole))))
    return [entry.row for entry in decoded.entries if entry.row is not None], len(decoded.letters)


LARGE = replace(TABLE, columns=(*TABLE.columns, Column("n", "integer", "int4", ordinal=3)))
SMALL = View("t", LARGE, ("id",), (("id", "id"), ("n", "n")))


@pytest.mark.parametrize("more", [{}, {"where": "n > 0"}, {"fields": {"twice": "n * 2"}}])
def test_a_view_that_does_not_use_a_large_value_lacks_nothing_in_a_warehouse_or_beside_spark_sql(more: Any) -> None:
    """Each such UPDATE went to the dead letters, though docs/decisions/toast.md says that the view goes on."""
    assert lacking(replace(SMALL, **more)) == ([(1, None, 7)], 0)


@pytest.mark.parametrize(
    "more",
    [
        {"columns": (("id", "id"), ("v", "v"))},
        {"where": "V IS NULL"},
        {"fields": {"all": "struct(*)"}},
        {"fields": {"all": "to_json(struct(t.*))"}},
    ],
)
def test_a_view_that_uses_a_large_value_in_any_way_makes_a_letter_of_a_row_without_it(more: Any) -> None:
    assert lacking(replace(SMALL, **more)) == ([], 1)


def newest_of(size: int, pairs: list[tuple[bytes | None, bytes | None]]) -> dict[str, tuple[int, bool]]:
    """What a repair finds in the log when it reads it in pieces: key -> version, and whether there is a row."""
    decoder, standing = EntryDecoder(SPEC), Standing[Newest](lambda newest: newest.entry)
    rows = [Record(key, value, "p.public.t", 0, offset) for offset, (key, value) in enumerate(pairs)]
    for start in range(0, len(rows), size):
        take(standing, decoder, SPEC.views["t"], rows[start : start + size])
    return {key: (one.entry.version, one.entry.document is not None) for key, one in standing.by_key().items()}


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_repair_finds_the_same_newest_record_however_the_log_is_cut(size: int) -> None:
    gone, again = orjson.dumps({"id": 1}), orjson.dumps({"id": 2})
    log = [event(1, "a", 10), event(2, "a", 11), (gone, None), (again, None), event(2, "again", 20), event(3, "b", 30)]
    found = newest_of(size, [*log, event(3, "older", 25)])
    assert found == {"1": (UNVERSIONED, False), "2": (20, True), "3": (30, True)}


def test_letters_and_records_travel_with_the_entries() -> None:
    key, value = event(1, "a", 10)
    decoded = EntryDecoder(SPEC).decode(records((key, value), (b'{"id":1}', b"no json"), (key, None)))
    assert (decoded.tally().version, decoded.tally().offset) == (1, 3)
