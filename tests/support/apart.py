"""A process of ``operations.child_process.Apart`` that a test ends when it likes, without a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Child:
    """As ``Apart``, to who waits for it.

    Args:
        arguments: what it was started with.
        over: whether it has ended by itself.
        error: what it ended with.
        said: lines that are not read yet.

    Attributes:
        outcome: what it returns.
        asked: how often it was asked to end.
        closed: how often it was ended.
    """

    def __init__(
        self, *arguments: Any, over: bool = False, error: Exception | None = None, said: Sequence[str] = ()
    ) -> None:
        self.arguments, self.over, self.error, self.said = arguments, over, error, [*said]
        self.outcome: Any = None
        self.asked = self.closed = 0

    @property
    def broken_off(self) -> bool:
        return self.asked + self.closed > 0

    def finish(self, outcome: Any = None, error: Exception | None = None) -> None:
        """Let it end by itself."""
        self.over, self.outcome, self.error = True, outcome, error

    def ended(self) -> bool:
        return self.over

    def lines(self) -> list[str]:
        said, self.said = self.said, []
        return said

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.outcome

    def ask(self) -> None:
        self.asked += 1

    def end(self, _seconds: float | None = None) -> None:
        self.closed += 1
