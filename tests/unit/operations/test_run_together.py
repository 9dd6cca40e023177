"""Several pipelines in one process: what is refused, and that none ends another."""

from __future__ import annotations

import threading

import pytest

from cdc.errors import ConfigError, SourceError
from cdc.pipeline import Pipeline
from console.log_lines import log_lines, say
from operations.run.patience import Asked
from operations.run.session import refuse_unlike
from operations.run.together import together


def named(name: str, **engine: object) -> Pipeline:
    return Pipeline.model_validate(
        {
            "version": 1,
            "name": name,
            "source": {"database": "d", "user": "u", "tables": ["a.b"]},
            "kafka": {"bootstrap": "h:1"},
            "connect": {"url": "http://h:1"},
            "sinks": {"s": {"type": "redis", "url": "redis://h", "tables": "all"}},
            "engine": engine,
        }
    )


def test_what_one_machine_can_not_be_is_refused_by_name() -> None:
    refuse_unlike([named("a", state_dir="/x", trigger_ms=5), named("b", state_dir="/y")])
    with pytest.raises(ConfigError, match="two of these files are of the pipeline a"):
        refuse_unlike([named("a"), named("b"), named("a")])
    with pytest.raises(ConfigError, match=r"engine\.driver_memory of pipeline c is not that of a"):
        refuse_unlike([named("a"), named("b"), named("c", driver_memory="2g")])
    secret = {"spark.hadoop.fs.s3a.secret.key": "hidden"}
    with pytest.raises(ConfigError, match=r"engine\.spark_conf of pipeline b") as caught:
        refuse_unlike([named("a"), named("b", spark_conf=secret)])
    assert "hidden" not in str(caught.value)


def test_an_error_is_told_at_once_and_raised_when_all_have_ended(capsys: pytest.CaptureFixture[str]) -> None:
    told = threading.Event()

    def fails() -> bool:
        raise SourceError("no such database", fix="make it")

    def goes_on() -> bool:
        assert told.wait(10)
        say("well")
        return False

    def heard(line: str) -> None:
        say(line)
        told.set()

    with log_lines(), pytest.raises(SourceError, match="no such database"):
        together({"a": fails, "b": goes_on}, heard)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "no such database" in first and "well" in last


def test_a_line_names_its_pipeline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_LOG", "text")

    def speaks() -> bool:
        say("warning: it is late")
        return True

    with log_lines():
        assert together({"a": speaks}, say)
    assert capsys.readouterr().err == "a: warning: it is late\n"


def test_told_to_end_before_it_began_is_no_failure() -> None:
    def asked() -> bool:
        raise Asked

    assert not together({"a": asked, "b": lambda: False}, lambda _line: None)
    assert together({"a": asked, "b": lambda: True}, lambda _line: None)
