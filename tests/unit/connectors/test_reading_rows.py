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


def found(monkeypatch: pytest.MonkeyPatch, *files: tuple[str, float | None, float], **parts: Any) -> list[Finding]:
    """What is said of files: (table, bytes, rows)."""
    monkeypatch.setattr(reading, "unless_locked", lambda *_: files)
    return list(reading.run(cast(Site, SimpleNamespace(pipeline=pipeline(**parts), db=None, catalogue=catalogue()))))


def test_who_fetches_fewer_rows_has_fewer_in_a_chunk() -> None:
    """A chunk of a table that is read again is held in memory, too: 8,192 rows of 150 KB are more than a worker has."""
    for rows, chunk in ((256, "256"), (8_192, "8192"), (10_240, "8192"), (100_000, "8192")):
        config = connector_config(pipeline(source={"snapshot_fetch_size": rows}), catalogue())
        assert (config["snapshot.fetch.size"], config["incremental.snapshot.chunk.size"]) == (str(rows), chunk)


def test_options_of_a_user_s_own_decide_what_is_held() -> None:
    assert rows_at_once(pipeline()) == 10_240
    assert rows_at_once(pipeline(source={"snapshot_fetch_size": 100})) == 100
    own: dict[str, Any] = {"incremental.snapshot.chunk.size": 500, "snapshot.fetch.size": "nonsense"}
    assert rows_at_once(pipeline(source={"snapshot_fetch_size": 100}, connect={"options": own})) == 500


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
    assert one.fix.startswith("set source.snapshot_fetch_size: 256; or")
    fitting: dict[str, Any] = {"source": {"snapshot_fetch_size": 256}}
    assert found(monkeypatch, half, wide, **fitting) == []
    own: dict[str, Any] = {"connect": {"options": {"incremental.snapshot.chunk.size": 8_192}}}
    [one] = found(monkeypatch, wide, **fitting, **own)
    assert "256, and take incremental.snapshot.chunk.size out of connect.options; or" in one.fix


def test_a_row_is_read_by_itself_at_the_least() -> None:
    assert File(FLIGHTS, 300.0 * MIB, 2.0).fitting(90 * MIB) == 1
    assert File(FLIGHTS, 64.0 * MIB, 1024.0).fitting(90 * MIB) == 1024
