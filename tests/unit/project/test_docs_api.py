"""docs/api.md shows the keys that the API's answers really have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from operations.overview.kept import _told, kept_report
from operations.state.folder import register_of
from operations.trace import report as traced
from spark.disk.batches import KeptBatch
from tests.support.page_cases import BATCH, BUILDS, TABLES
from tests.support.watched import World, nowhere, status, world

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def examples() -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)


def test_overview_job_and_promotion(tmp_path: Path) -> None:
    overview, job, promotion, _ = examples()
    with world(tmp_path, told={"status": status(search={}), "generations": BUILDS, "tables": TABLES}) as made:
        made.look()
        assert overview["seen"]["kept"].keys() == seen_kept(made).keys()
        seen = made.browser.get("/v1/overview").json()
        assert seen.keys() == overview.keys() and seen["seen"].keys() == overview["seen"].keys()
        for name in ("freshness", "rates"):
            assert seen["seen"][name]["search"].keys() == overview["seen"][name]["search"].keys()
        assert job.keys() == made.served.jobs.wait(made.served.jobs.begin("pause", "search"), 10).to_dict().keys()
        register = register_of(made.served.pipeline, "search")
        register.move(register.create("x").number, "ready")
        assert made.browser.get("/v1/sinks/search/promotions/2").json().keys() == promotion.keys()


def seen_kept(made: World) -> dict[str, Any]:
    """Of the maker; what is in it besides is compared with what the test of pages has."""
    assert examples()[0]["seen"]["kept"]["batches"]["search"][0].keys() == BATCH.keys()
    assert {"flow", *_told(KeptBatch(1, 2.0, 3))} == BATCH.keys()
    return kept_report(made.served.pipeline)


def test_builds_and_tables(tmp_path: Path) -> None:
    """Their makers, not what a test has put in their place."""
    from operations.overview.builds import builds

    overview = examples()[0]["seen"]
    with world(tmp_path) as made:
        [one] = builds(made.served.pipeline)["search"]
    assert one.keys() == overview["generations"]["search"][0].keys() == BUILDS["search"][0].keys()
    assert overview["tables"][0].keys() == TABLES[0].keys()  # type: ignore[attr-defined]


def traced_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that can be traced where no server is, and a log that is soon given up."""
    from cdc.catalogue import Catalogue, Column, Table

    table = Table("public", "flights", (Column("id", "int8", "int8"),), ("id",))
    monkeypatch.setattr(traced, "_catalogue", lambda _: Catalogue({"public.flights": table}, 1, 1))
    monkeypatch.setattr("operations.records.backwards.SILENT_SECONDS", 0.2)


def test_a_trace_with_every_server_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs no server; the whole is looked at in tests/integration/test_read_your_writes.py."""
    traced_away(monkeypatch)
    shown = examples()[3]
    with world(tmp_path) as made:
        told = traced.trace_report(made.served.pipeline, "flights", "4711")
    assert told.keys() == shown.keys() and told["verdict"].keys() == shown["verdict"].keys()
    assert "does not answer" in told["source"]["error"] and told["verdict"]["stuck"] == "log"
    assert told["log"].keys() == {"error", "there", "same_as_source"}
    search, *others = told["sinks"]
    assert search.keys() == shown["sinks"][0].keys() and "ConnectionError" in search["error"]
    assert all("airlines" in one["error"] for one in others), others  # a table that is not known here


@pytest.mark.parametrize("values", [False, True])
def test_the_page_of_such_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: bool) -> None:
    traced_away(monkeypatch)
    with world(tmp_path) as made:
        answer = made.browser.get(f"/trace?table=flights&key=4711&part=found{'&values=1' * values}")
    assert answer.status_code == 200 and "<strong>Stuck:</strong> the log" in answer.text
