"""How many rows the connector reads at a time, and what `check` says where they are too large for its memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.debezium import connector_config, rows_at_once
from connectors.preflight import reading
from connectors.preflight.model import Finding, Level, Site
from connectors.preflight.reading import MIB, File
from tests.support.connector_cases import catalogue, pipeline

FLIGHTS = "public.flights"


def found(
    monkeypatch: pytest.MonkeyPatch, *files: tuple[str, float | None, float], own: float = 0, **parts: Any
) -> list[Finding]:
    """What is said of files: (table, bytes, rows); ``own`` of the bytes are in the tables' own files."""
    rows = [(table, size, None if size is None else own, rows) for table, size, rows in files]
    monkeypatch.setattr(reading, "unless_locked", lambda *_: rows)
    return list(reading.run(cast(Site, SimpleNamespace(pipeline=pipeline(**parts), db=None, catalogue=catalogue()))))


def test_who_fetches_fewer_rows_has_fewer_in_a_chunk() -> None:
    """A chunk of a table that is read again is held in memory, too: 8,192 rows of 150 KB are more than a worker has."""
    for rows, chunk in ((1, "256"), (256, "256"), (8_192, "8192"), (10_240, "8192"), (100_000, "8192")):
        config = connector_config(pipeline(source={"snapshot_fetch_size": rows}), catalogue())
        assert (config["snapshot.fetch.size"], config["incremental.snapshot.chunk.size"]) == (str(rows), chunk)


def test_options_of_a_user_s_own_decide_what_is_held() -> None:
    assert rows_at_once(pipeline()) == 10_240
    assert rows_at_once(pipeline(source={"snapshot_fetch_size": 500})) == 500
    assert rows_at_once(pipeline(source={"snapshot_fetch_size": 100})) == 256  # a chunk's
    own: dict[str, Any] = {"incremental.snapshot.chunk.size": 500, "snapshot.fetch.size": "nonsense"}
    assert rows_at_once(pipeline(source={"snapshot_fetch_size": 900}, connect={"options": own})) == 500


def test_rows_that_fit_are_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    many = (FLIGHTS, 10_000_000 * 500.0, 10_000_000.0)
    few = ("public.blobs", 200.0 * MIB, 10.0)
    grown = ("public.queue", 100_000.0 * MIB, 20.0)  # dead rows: a row has no more than a record may have
    assert found(monkeypatch, many, few, grown, ("public.gone", None, 7.0)) == []


def test_rows_that_do_not_fit_are_named_with_the_number_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = ("public.documents", 1_000_000 * 150_000.0, 1_000_000.0)
    half = ("public.pages", 1_000_000 * 40_000.0, 1_000_000.0)
    [one] = found(monkeypatch, half, (FLIGHTS, 5e9, 1e7), wide)
    assert (one.level, one.about) == (Level.WARNING, "public.documents, public.pages")
    assert one.message.startswith("10,240 rows of public.documents have some 1.4 GiB")
    assert one.message.endswith("; so it is with public.pages")
    slower = "(all tables are then read again 256 rows at a time, which takes longer)"
    assert one.fix.startswith(f"set source.snapshot_fetch_size: 256 {slower}; or give the worker's Java more memory")
    fitting: dict[str, Any] = {"source": {"snapshot_fetch_size": 256}}
    assert found(monkeypatch, half, wide, **fitting) == []
    own: dict[str, Any] = {"connect": {"options": {"incremental.snapshot.chunk.size": 8_192}}}
    [one] = found(monkeypatch, wide, **fitting, **own)
    assert "256, and take incremental.snapshot.chunk.size out of connect.options (all" in one.fix


def test_no_number_is_proposed_with_which_reading_again_would_not_end() -> None:
    """Of a table of 60 MB rows it was 1: another of ten million narrow rows was ten million chunks."""
    assert File(FLIGHTS, 300.0 * MIB, 0.0, 2.0).fitting(90 * MIB) == 256
    assert File(FLIGHTS, 64.0 * MIB, 0.0, 1024.0).fitting(90 * MIB) == 1024


def test_where_the_fewest_do_not_fit_memory_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = ("public.films", 1_000 * 60.0 * MIB, 1_000.0)
    room: dict[str, Any] = {"kafka": {"max_message_bytes": 90 * MIB}}
    [one] = found(monkeypatch, huge, **room)
    assert one.fix.startswith("give the worker's Java more memory (-Xmx): 256 rows, ")
    assert "have some 15 GiB; and set source.snapshot_fetch_size: 256 (" in one.fix
    [one] = found(monkeypatch, huge, **room, source={"snapshot_fetch_size": 100})
    assert one.message.startswith("256 rows of public.films have some 15 GiB")
    assert one.fix.endswith("have some 15 GiB")


def test_dead_rows_of_a_table_s_own_file_are_no_live_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of 10,000 rows in 10 GB of file had 1 MB a row: a row has no more than a page."""
    queue = ("public.queue", 10_240.0 * MIB, 10_000.0)
    assert found(monkeypatch, queue, own=10_240.0 * MIB) == []
    [one] = found(monkeypatch, queue, own=5_120.0 * MIB)  # what is out of line may be alive
    assert "by its size, in which deleted large values count until VACUUM FULL" in one.message
