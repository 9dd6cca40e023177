"""How a pipeline is to be run, as who runs it has said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.run.patience import Stop, Waiting, patiently

if TYPE_CHECKING:
    from operations.run.session import Sessions
    from operations.run.source_watch import First


@dataclass(frozen=True)
class Wanted:
    """How a pipeline is to be run.

    Attributes:
        only: sink names; none for all.
        stop: is set when the process was told to end.
        master: Spark's, if not as the file says.
        until_caught_up: end once all that was in the log has been applied.
        until: when to give up, on the monotonic clock.
        sessions: where Spark's sessions come from; None for a virtual machine of its own.
    """

    only: Sequence[str]
    stop: Stop
    master: str | None
    until_caught_up: bool
    until: float | None
    sessions: Sessions | None = None

    @property
    def alone(self) -> bool:
        """Whether it is the only pipeline of this process."""
        return self.sessions is None


def first_look(pipeline: Pipeline, wanted: Wanted, say: Say) -> First:
    """How the first look at the source is had: what it needs may be away, a promoted server's connector for one.

    Args:
        pipeline: the loaded file.
        wanted: how it is to be run.
        say: is told what is waited for.
    """

    def first(check: Callable[[], None]) -> None:
        with Waiting(pipeline, wanted.only) as waiting:
            patiently(check, wanted.stop, say, waiting.tell, wanted.until)

    return first
