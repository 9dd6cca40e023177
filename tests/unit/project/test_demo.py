"""The demo's verdict is its last line, whatever goes wrong; and it leaves no server of its page behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elasticsearch import ConnectionTimeout

from cdc.errors import HeadwaterError
from examples.flights import demo, page

# Instead of Python: a server that says nothing at its usual port, and comes up at another one.
SERVER = """#!/bin/sh
echo $$ >> {pids}
case "$*" in *"--port 0"*) {second};; esac
exec sleep 60
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConnectionTimeout("Connection\ntimed out"), "DEMO FAILED ConnectionTimeout: Connection timed out"),
        (KeyError("sinks"), "DEMO FAILED KeyError: 'sinks'"),
        (demo.DemoFailed("they differ"), "DEMO FAILED they differ"),
        (HeadwaterError("no change arrived"), "DEMO FAILED no change arrived"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_last_line_is_the_verdict(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        def run(self) -> str:
            raise error

    monkeypatch.setattr(demo, "Demo", Failing)
    assert demo.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == line


def made(folder: Path, second: str, monkeypatch: pytest.MonkeyPatch) -> page.DemoPage:
    python = folder / "python"
    python.write_text(SERVER.format(pids=folder / "pids", second=second))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(page, "START_SECONDS", 3.0)
    return page.DemoPage(dict(os.environ), folder / "pipeline.yaml", folder / "serve.log")


def alive(folder: Path) -> list[bool]:
    return [Path(f"/proc/{pid}").exists() for pid in (folder / "pids").read_text().split()]


def test_a_server_that_did_not_begin_is_ended_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path, "echo 'serving it at http://127.0.0.1:9'", monkeypatch) as served:
        assert served.url == "http://127.0.0.1:9"
        assert alive(tmp_path) == [False, True]
    assert alive(tmp_path) == [False, False]


def test_none_is_left_where_none_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HeadwaterError, match="did not start: no way"), made(tmp_path, "echo no way", monkeypatch):
        pass
    assert alive(tmp_path) == [False, False]


def test_the_readme_shows_the_commands_that_the_demo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever types them means the example's file, not one called as it is in the folder where he stands."""

    class Page:
        def __init__(self, *_: Any) -> None:
            self.url = ""

        def __enter__(self) -> Page:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: None)
    monkeypatch.setattr(demo, "DemoPage", Page)
    for asking in ("wait_filled", "show_live", "verify"):
        monkeypatch.setattr(demo.Demo, asking, lambda _: "")
    demo.Demo().run()
    root = Path(__file__).parents[3]
    printed = capsys.readouterr().out.replace(f"{root}/", "")
    told = (root / "README.md").read_text().partition("\n### What you just saw\n")[2].partition("\n### ")[0]
    commands = [[line for line in text.splitlines() if line.startswith("$ ")] for text in (told, printed)]
    assert commands[0] == commands[1] and len(commands[0]) == 6
