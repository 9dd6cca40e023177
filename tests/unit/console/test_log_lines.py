"""What `run` and `serve` say: sentences for a person, else JSON lines of which each says what it is about."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import ConfigError, StateError
from cdc.journal import CONTEXT, Line, about, after, all_about, telling
from console import log_lines
from console.log_lines import FORM, LEVEL, belongs_to, last_defect, last_word, say, wanted_form
from operations.run.flow_lines import FlowLines
from spark.disk.status import FlowStatus
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from tests.support.lone_cache import FILE

ROOT = Path(__file__).parents[3]
ROOM = logging.getLogger("spark.runner")


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(FORM, "json")
    monkeypatch.delenv(LEVEL, raising=False)
    with log_lines.log_lines():
        yield


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_is_for_whoever_is_no_terminal_unless_somebody_says_so() -> None:
    assert wanted_form({}, terminal=True) == "text"
    assert wanted_form({}, terminal=False) == "json"
    assert wanted_form({FORM: "json"}, terminal=True) == "json"
    assert wanted_form({FORM: "text"}, terminal=False) == "text"
    with pytest.raises(ConfigError, match="HEADWATER_LOG is 'xml'"):
        wanted_form({FORM: "xml"}, terminal=True)


def test_every_line_has_the_same_names_first(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    belongs_to("shop")
    say("pipeline shop: starting")
    ROOM.warning("a worker is slow")
    found = lines(capsys)
    assert [list(one)[:8] for one in found] == [["at", "level", "event", *CONTEXT]] * 2
    assert [(one["pipeline"], one["sink"], one["batch"]) for one in found] == [("shop", None, None)] * 2
    assert [(one["level"], one["logger"]) for one in found] == [("info", "headwater"), ("warning", "spark.runner")]
    assert found[0]["event"] == "pipeline shop: starting" and found[0]["at"].endswith("Z")


def test_a_sentence_takes_along_what_it_is_about(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    telling(said.append, sink="search", generation=2)("shown")
    said += all_about(["built", Line("compared", generation=3)], sink="cache", generation=1)
    for line in said:
        say(after("warning: ", line))
    found = [(one["event"], one["sink"], one["generation"], one["level"]) for one in lines(capsys)]
    assert found == [
        ("warning: shown", "search", 2, "warning"),
        ("warning: built", "cache", 1, "warning"),
        ("warning: compared", "cache", 3, "warning"),
    ]


def test_how_grave_a_sentence_is_stands_at_its_beginning(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    """An alarm of the WAL comes after its own warning, and is worse."""
    heads = {"alarm: ": "error", "error: ": "error", "warning: ": "warning", "waiting: ": "warning", "": "info"}
    for head in heads:
        say(f"{head}slot s makes Postgres keep 9 GiB of WAL")
    assert [one["level"] for one in lines(capsys)] == list(heads.values())


def test_each_thread_has_its_own(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    both = threading.Barrier(2, timeout=10)

    def work(flow: str) -> None:
        with about(sink="s", flow=flow, batch=7):
            both.wait()  # both have bound theirs now
            ROOM.warning("from %s", flow)
            both.wait()
        ROOM.warning("after %s", flow)

    with about(sink="outside"):
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = {one["event"]: (one["sink"], one["flow"], one["batch"]) for one in lines(capsys)}
    nothing = (None, None, None)
    assert found == {"from a": ("s", "a", 7), "from b": ("s", "b", 7), "after a": nothing, "after b": nothing}


def test_no_password_gets_into_a_line(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    say("waiting: redis://:geheim@host:6379 does not answer")
    try:
        raise RuntimeError("http://me:geheim@host said no")
    except RuntimeError:
        ROOM.exception("it failed")
    text = capsys.readouterr().err
    assert "geheim" not in text and "RuntimeError" in json.loads(text.splitlines()[1])["exception"]


@pytest.mark.parametrize(("level", "told"), [(None, ["w"]), ("debug", ["d", "w"]), ("error", [])])
def test_a_level_is_for_what_rooms_say(
    level: str | None, told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FORM, "json")
    monkeypatch.setenv(LEVEL, level or "")
    with log_lines.log_lines():
        ROOM.debug("d")
        ROOM.warning("w")
        logging.getLogger("elastic_transport").info("of each request")
        say("always")
    assert [one["event"] for one in lines(capsys)] == [*told, "always"]


def test_it_leaves_pythons_logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORM, "json")
    root = logging.getLogger()
    before = list(root.handlers), ROOM.getEffectiveLevel(), logging.getLogger("spark").level
    with log_lines.log_lines():
        assert len(root.handlers) == len(before[0]) + 1
    assert (list(root.handlers), ROOM.getEffectiveLevel(), logging.getLogger("spark").level) == before


def test_for_a_person_a_sentence_is_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(FORM, "text")
    with log_lines.log_lines():
        say(Line("search/flight: running", sink="search"))
    assert capsys.readouterr().err == "search/flight: running\n"


def test_the_last_word_is_in_the_form_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = []
    for form in ("json", "text"):
        monkeypatch.setenv(FORM, form)
        with pytest.raises(StateError) as caught, log_lines.log_lines():
            belongs_to("shop")
            raise StateError("it is held")
        errors.append(caught.value)
        last_word(caught.value, f"error [state]: {caught.value}")
        assert last_defect(caught.value) == (form == "json")
    first, defect, *rest = capsys.readouterr().err.splitlines()
    told = json.loads(first)
    assert (told["level"], told["event"][:31], told["pipeline"]) == ("error", "error [state]: it is held"[:31], "shop")
    assert json.loads(defect)["level"] == "critical" and "StateError" in json.loads(defect)["exception"]
    assert rest == ["error [state]: it is held"]
    last_word(errors[0], "error: of another command")  # what ended long ago decides nothing
    assert capsys.readouterr().err == "error: of another command\n"


def test_lines_of_a_flow_say_which_and_its_batch(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    flow = Flow("flight", FlowSpec("search", {}, {}, {}, {}, {}, generation=3), Reading("", {}, None), Path("f"))
    goal = SimpleNamespace(running=[SimpleNamespace(flow=flow)], look=lambda: None, way=lambda _run: (5, 10))
    status = FlowStatus("search@3/flight", "running", 1, 41, 9, 7, 0, 0, 0, 0, 0, 0, None, [], 0.0)
    FlowLines(cast(Any, goal), say).show([status])
    [told] = lines(capsys)
    assert [told[name] for name in CONTEXT[1:]] == ["search", 3, "flight", 41]
    assert told["event"].startswith("search@3/flight: running · 50% of the log") and told["records"] == 9


def test_a_flow_that_was_at_its_goal_has_no_share_to_tell_any_more(
    as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said `100% of the log` of one that was hours behind: the goal is where the log ended as it began."""
    flow = Flow("flight", FlowSpec("search", {}, {}, {}, {}, {}, generation=3), Reading("", {}, None), Path("f"))
    run, ways = SimpleNamespace(flow=flow), [(20, 40), (40, 40), (40, 40), (40, 40), (10, 50)]
    goal = SimpleNamespace(running=[run], look=lambda: None, way=lambda _run: ways.pop(0))
    status = FlowStatus("flight", "running", 7, 41, 9, 9, 0, 0, 0, 0, 0, 12, None, (), 0.0)
    told = FlowLines(cast(Any, goal), say, line_seconds=0.0)
    for records in (1, 2, 3, 4, 5):
        told.show([replace(status, records=records)])
    shares = [one["event"].split(" · ")[1] for one in lines(capsys)]
    assert [one.split(",")[0] for one in shares] == [
        "50% of the log", "100% of the log", "3 records", "4 records", "20% of the log"
    ]  # fmt: skip


# -- the command -------------------------------------------------------------------------------------------------------


def command(folder: Path, verb: str, *options: str, state: str = "{}") -> list[str]:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.format(folder=folder / "state"))
    (folder / "state").mkdir()
    (folder / "state" / "format.json").write_text(state)
    return [sys.executable, "-m", "console.cli", verb, str(file), *options]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def test_the_command_says_all_of_it_in_json(tmp_path: Path) -> None:
    words = command(tmp_path, "run", "--until-caught-up", "--timeout", "1")
    (tmp_path / "state" / "format.json").unlink()
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1 and not done.stdout
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert found[0]["event"] == "pipeline p: starting"
    assert found[-1]["level"] == "error" and "gave up waiting: Postgres does not answer" in found[-1]["event"]
    assert {one["pipeline"] for one in found} == {"p"}


def test_at_a_terminal_it_says_what_it_always_said(tmp_path: Path) -> None:
    words = command(tmp_path, "run", "--until-caught-up", "--timeout", "1")
    (tmp_path / "state" / "format.json").unlink()
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(words, env=environment(), stdout=theirs, stderr=theirs)
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # nobody has its other end any more
                break
            said += part
        assert process.wait(60) == 1
    finally:
        os.close(ours)
    first, *_, last = said.decode().replace("\r\n", "\n").strip().splitlines()
    assert first == "pipeline p: starting" and last.startswith("  what to do:") and b'"event"' not in said


def test_a_word_that_is_no_form_ends_it(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "run"), env=environment(HEADWATER_LOG="xml"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "HEADWATER_LOG is 'xml'" in done.stderr and "Traceback" not in done.stderr
