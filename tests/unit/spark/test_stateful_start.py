"""Flows with a state are started several at a time, in one session, and each begins with its own settings."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from spark.events.stateful import _SETTINGS, begin_stateful


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
