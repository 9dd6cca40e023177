"""The codec on records that a real Debezium wrote: see tests/fixtures/debezium_json/README.md."""

from __future__ import annotations

from cdc.view import View
from tests.support import codec_cases as cases


def test_every_value_arrives_as_postgres_prints_it_or_is_documented() -> None:
    captured, raw = cases.fixture("types")
    cases.check_types(captured, raw["texts"])


def test_large_values_are_marked_or_documented() -> None:
    captured, _ = cases.fixture("toasty")
    cases.check_placeholders(captured)


def test_positions_order_every_key_as_the_source_did() -> None:
    captured, raw = cases.fixture("rows")
    cases.check_positions(captured, {int(key): value for key, value in raw["final"].items()}, raw["snapshot_lsn"])


def test_columns_that_debezium_leaves_out_are_not_in_views() -> None:
    captured, _ = cases.fixture("types")
    there = [change.after.keys() for change in captured.changes() if change.after is not None]
    assert there and all(captured.table.by_name.keys() - names for names in there)
    in_view = {source for source, _ in View.identity(captured.table).columns}
    assert all(in_view <= names for names in there)
