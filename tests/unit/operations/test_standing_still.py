"""Views that `verify` does not compare, as a table of theirs was taken out of the file: they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from console.cli.verify import command
from operations.rebuild.compared import judged
from operations.verify.audit import line
from operations.verify.comparison import Comparison
from operations.verify.report import verified
from operations.verify.tables_now import TablesNow
from operations.verify.verifier import Asked, Verifier
from tests.unit.operations.test_gone_tables import LEFT, NAMED, fill, load


def compared(tmp_path: Path, chosen: str, then: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """The report of a cache of tables of which one was taken out, and the last line of `verify`."""
    fill(load(tmp_path, NAMED, chosen), "cache", monkeypatch)
    pipeline = load(tmp_path, "public.orders", then)
    monkeypatch.setattr("operations.state.catalogue.source_catalogue", lambda _: LEFT)
    monkeypatch.setattr(
        Verifier, "_view", lambda _self, view, holders, _folder: {one.sink: Comparison(view.name) for one in holders}
    )
    monkeypatch.setattr(TablesNow, "refuse_altered", lambda *_: None)
    report = verified(pipeline, Asked(["cache"]))
    monkeypatch.setattr("cdc.pipeline.load", lambda _: pipeline)
    (tmp_path / "f").touch()
    told = CliRunner().invoke(command, [str(tmp_path / "f"), "--sink", "cache"], catch_exceptions=False)
    assert told.exit_code == (0 if report["equal"] else 1)
    return report, told.stdout.splitlines()[-1]


def test_the_others_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, last = compared(tmp_path, "all", "all", monkeypatch)
    assert report["equal"] and last == "the others equal Postgres; standing still: cache/lines"
    assert line(report).endswith(": equal; standing still: cache/lines")
    assert judged(report, pytest.fail) == (True, False)


def test_of_what_nobody_has_compared_it_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was `equal`, with exit code 0; and a generation that was filled before the edit would have been shown."""
    report, last = compared(tmp_path, "[lines]", "[orders]", monkeypatch)
    assert not report["equal"] and last == "nothing was compared; standing still: cache/lines"
    assert line(report).endswith(": nothing was compared; standing still: cache/lines")
    assert judged(report, pytest.fail) == (False, False)
