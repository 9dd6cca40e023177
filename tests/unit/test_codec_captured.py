"""The codec on records that a real Debezium wrote: see tests/fixtures/debezium_json/README.md."""

from __future__ import annotations

from cdc.records.debezium_json import Decoder
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


def test_events_of_a_table_that_did_not_change_show_no_drift() -> None:
    captured, _ = cases.fixture("rows")
    decoder = Decoder(captured.table)
    assert {decoder.drift(change) for change in captured.changes()} == {((), ())}


def test_columns_that_debezium_leaves_out_are_drift_but_not_in_views() -> None:
    captured, _ = cases.fixture("types")
    decoder = Decoder(captured.table)
    (_, absent), *rest = {decoder.drift(change) for change in captured.changes()}
    assert not rest
    assert absent
    in_view = {source for source, _ in View.identity(captured.table).columns}
    assert not in_view & set(absent)
