"""A `run` on another machine, of which only the state folder is seen: what it does with a file that is applied here."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.pipeline import Pipeline, load
from console.cli.main import cli
from operations.edits.pending import let_go, pending, under_way
from operations.state.accepted import Running, Text, file_status, note_running, read_runs, runs_without, this_process
from operations.state.folder import register_of
from spark.disk.process import signature
from tests.unit.operations.test_file_edits import NEW, Files
from tests.unit.operations.test_other_host import ELSEWHERE, NAMESAKE, NOBODY, held


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.path.write_text(made.text())
    return made


@pytest.fixture
def elsewhere(files: Files) -> Pipeline:
    """A `run` on another host with one sink more than the file has now."""
    pipeline = files.load(more=NEW)
    note_running(pipeline, replace(this_process(Text("p.yaml", files.text(more=NEW), 2.0)), **ELSEWHERE))
    return pipeline


def renew(pipeline: Pipeline, ago: float = 0.0, **who: Any) -> None:
    register_of(pipeline, "third").generation(1).lease._write(held(ago, **who))


def test_a_run_on_another_host_is_alive_while_it_renews_a_lease(files: Files, elsewhere: Pipeline) -> None:
    renew(elsewhere, **ELSEWHERE)
    fewer = files.load()  # what it renews is of a sink that this file does not have
    changes = pending(fewer)
    assert changes is not None and changes.removed == ("third",) == tuple(let_go(fewer))
    assert file_status(fewer)["pid"] == NOBODY
    assert runs_without(files.load(more=NEW.replace("third", "fourth")), "fourth")


@pytest.mark.parametrize(("ago", "who"), [(0, None), (60, ELSEWHERE), (0, ELSEWHERE | {"pid": 0}), (0, NAMESAKE)])
def test_a_run_on_another_host_that_nobody_can_see_does_nothing_but_lets_go_of_sinks_only_if_asked(
    files: Files, elsewhere: Pipeline, ago: float, who: dict[str, Any] | None
) -> None:
    if who is not None:
        renew(elsewhere, ago, **who)
    fewer = files.load()
    assert tuple(let_go(fewer)) == ("third",)
    assert pending(fewer) is None and file_status(fewer)["pid"] is None and under_way(fewer) == (set(), set())
    assert tuple(let_go(elsewhere)) == ()


def test_a_run_on_another_host_whose_clock_was_ahead_is_alive_for_as_long_as_it_renews_a_lease(
    files: Files, elsewhere: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(at=1_000.0)
    monkeypatch.setattr("spark.disk.lease.time", SimpleNamespace(time=time.time, monotonic=lambda: now.at))
    for ahead in (3_600, 3_603):
        renew(elsewhere, -ahead, **ELSEWHERE)
        now.at += 60.0
        assert file_status(files.load())["pid"] == NOBODY
    now.at += 60.0
    assert file_status(files.load())["pid"] is None


def test_a_run_of_this_host_that_is_gone_lets_go_of_nothing(files: Files, elsewhere: Pipeline) -> None:
    [found] = read_runs(elsewhere)
    assert found.alive(elsewhere) is None
    note_running(elsewhere, replace(found, host=""))
    assert tuple(let_go(files.load())) == () and pending(files.load()) is None
    old = {name: value for name, value in asdict(replace(found, **signature())).items() if name != "host"}
    (files.folder / "p" / "running.json").write_text(json.dumps(old))
    assert tuple(let_go(files.load())) == ("third",)
    assert isinstance(read_runs(elsewhere)[0], Running)


def test_a_run_in_another_container_of_this_name_is_not_gone_because_its_number_is_nobody_s_here(
    files: Files, elsewhere: Pipeline
) -> None:
    [found] = read_runs(elsewhere)
    note_running(elsewhere, replace(found, host=f"{socket.gethostname()}/1"))
    assert tuple(let_go(files.load())) == ("third",)


def test_apply_asks_before_a_run_on_another_host_lets_go_of_a_sink(
    files: Files, elsewhere: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("it was applied")

    refuse: Callable[..., None] = lambda *_: None  # noqa: E731
    monkeypatch.setattr("operations.gate.refuse_wrong_views", refuse)
    monkeypatch.setattr("connectors.apply.apply", never)
    assert load(files.path).sinks.keys() == {"cache", "other"} and "third" in elsewhere.sinks
    result = CliRunner().invoke(cli, ["apply", str(files.path)], input="n\n")
    assert result.exit_code == 1 and "Let go of third?" in result.output
    assert "it was applied" not in repr(result.exception)
