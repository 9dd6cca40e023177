"""Flows with a state are started several at a time, in one session, and each begins with its own settings."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

from cdc.errors import ConfigError, StateError
from spark.events import fold, timed
from spark.events.stateful import _SETTINGS, begin_stateful, refuse_other_attempt
from spark.flow import Flow, Reading
from spark.reading.record import batch_of
from spark.reading.spec import FlowSpec
from tests.support.timed import MATCHES
from tests.unit.spark.test_timing import micros, reader, record


class Conf(dict[str, str]):
    """A session's settings."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


class Session:
    """What is asked of one here."""

    def __init__(self) -> None:
        self.conf = Conf()


def test_each_has_the_settings_while_it_starts_and_nobody_afterwards() -> None:
    session, together = Session(), threading.Barrier(4)

    def begin(number: int) -> dict[str, str]:
        together.wait()

        def start() -> Any:
            time.sleep(0.01 * (4 - number))
            return dict(session.conf)

        return cast(dict[str, str], begin_stateful(cast(Any, session), start))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(begin, range(4))) == [dict(_SETTINGS)] * 4
    assert session.conf == {}


class Package:
    """What py4j says a class is that the virtual machine lacks."""

    def __getattr__(self, name: str) -> Any:
        return self


class Before(Package):
    """A class that lacks the method: of an older jar."""

    def __call__(self, *given: object) -> object:
        raise Py4JError("headwater.spark.Ticks.begin does not exist in the JVM")


@pytest.mark.parametrize("found", [Package(), Before()])
def test_an_absence_without_our_own_classes_fails_for_good_and_says_how_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Package
) -> None:
    """It was started again for ever: "'JavaPackage' object is not callable"."""
    monkeypatch.setattr(timed, "check_reach", lambda *_: None)
    monkeypatch.setattr(timed, "_with_events", lambda _: ([], []))
    log = SimpleNamespace(union=lambda more: more)
    monkeypatch.setattr(timed, "changelog", lambda *_, turns: log)
    spec = FlowSpec("s", {"v": MATCHES["alone"]}, {"t": ("v",)}, {}, {}, {})
    session: Any = SimpleNamespace(_jvm=found)
    opened: Any = lambda *_: SimpleNamespace(turns=None)  # noqa: E731
    with pytest.raises(ConfigError, match=r"Spark lacks headwater-spark\.jar") as failed:
        timed.start_timed(session, Flow("v", spec, Reading("", {}, None), tmp_path), cast(Any, None), opened)
    assert "headwater up" in str(failed.value) and not failed.value.transient


def test_a_state_of_rows_of_an_interrupted_snapshot_is_not_gone_on_with(tmp_path: Path) -> None:
    def flow(lsn: int) -> Flow:
        return Flow("v", FlowSpec("s", {}, {}, {}, {}, {}, snapshot_lsn=lsn), Reading("", {}, None), tmp_path)

    def planned(batch: int, end: int) -> None:
        (tmp_path / "checkpoint/offsets").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"checkpoint/offsets/{batch}").write_text(f'v1\n{{}}\n{{"t":{{"0":0,"1":{end}}}}}')

    refuse_other_attempt(flow(1000))
    refuse_other_attempt(flow(2000))  # nothing was read yet
    planned(0, 0)
    refuse_other_attempt(flow(3000))  # nor is anything in a batch of no records
    planned(1, 7)
    refuse_other_attempt(flow(3000))
    with pytest.raises(StateError, match="s/v has counted rows of an initial snapshot after which another") as failed:
        refuse_other_attempt(flow(4000))
    assert "headwater rebuild FILE s --auto" in str(failed.value)
    assert "interrupted, or Kafka Connect had lost" in failed.value.means, "it can't tell which"
    (tmp_path / "snapshot.json").unlink()  # of before there were such notes
    refuse_other_attempt(flow(4000))
    with pytest.raises(StateError):
        refuse_other_attempt(flow(5000))


def test_folds_windows_and_matches_ask_for_that_before_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Flow) -> None:
        raise StateError("interrupted")

    starts: Any = ((fold, fold.start_fold), (timed, partial(timed.start_timed, keep=cast(Any, None))))
    for module, start in starts:
        monkeypatch.setattr(module, "check_reach", lambda *_: None)
        monkeypatch.setattr(module, "refuse_other_attempt", refuse)
        spec = FlowSpec("s", {"v": MATCHES["alone"]}, {"t": ("v",)}, {}, {}, {})
        with pytest.raises(StateError, match="interrupted"):
            start(cast(Any, None), Flow("v", spec, Reading("", {}, None), tmp_path))


def test_an_interrupted_snapshot_s_rows_move_no_clock(tmp_path: Path) -> None:
    """By theirs the last attempt's, which are the same ones, would be late."""
    first = [record(f"2026-01-01T{hour}:00:00Z", "r", 9, snapshot="true") for hour in (10, 11)]
    last = record("2026-01-01T10:00:00Z", "r", 10, snapshot="true")
    read = reader(tmp_path).read(batch_of([*first, last]))
    assert (read.at, read.again, read.clocks) == ([micros("2026-01-01T10:00:00Z")], [False], [None])
    assert read.decoded.records == 3
