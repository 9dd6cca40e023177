"""Flows with a state are started several at a time, in one session, and each begins with its own settings."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

from cdc.errors import ConfigError
from spark.events import timed
from spark.events.stateful import _SETTINGS, begin_stateful
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from tests.support.timed import MATCHES


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
