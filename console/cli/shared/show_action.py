"""How plan, apply and drop show actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import RLock, Timer
from types import TracebackType

import click

from connectors.actions import MANY, Action

SIGNS = {"create": ("+", "green"), "remove": ("-", "red"), "change": ("~", "yellow")}
# A connector's configuration is long; plan shows what differs, and --json shows all.
MAX_LINES = 12
# What there may be hundreds of, one for each table, one behind the other.
NOUNS = {"topic": "topics"} | dict.fromkeys(
    ("grant", "publication", "replica-identity", "snapshot", "table", "trigger"), "tables"
)
# Names in a line that stands for many.
NAMED = 3
# So long what was done is kept for a line with others: a signal that ends the process leaves it untold.
KEPT_SECONDS = 1.0


def kind_of(action: Action) -> str:
    """Whether the action creates, removes or changes."""
    if action.after is None:
        return "remove"
    return "create" if action.before is None else "change"


class Actions:
    """A context manager whose ``show`` takes each action; what is done to many tables becomes one line.

    Args:
        done: they were done: no need to list their settings again. What was removed is named one by one, since no
            other run would show it.
        all_in: where every name is found, as long as it is not done; empty: here.
    """

    def __init__(self, *, done: bool = False, all_in: str = "--json") -> None:
        self.done, self.all_in = done, all_in
        self.alike: list[Action] = []
        self.lock, self.timer = RLock(), Timer(KEPT_SECONDS, self._print_late)

    def __enter__(self) -> Actions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._print()  # also what was done before an error

    def show(self, action: Action) -> None:
        """Print an action, or keep it until the next one is known not to be the same for another table."""
        with self.lock:
            self.begins(action)
            self.alike.append(action)
            if action.kind not in NOUNS:  # no others are like it, and the next may take long
                self._print()
            elif self.done and len(self.alike) == 1:
                self.timer = Timer(KEPT_SECONDS, self._print_late)
                self.timer.daemon = True
                self.timer.start()

    def begins(self, action: Action | None) -> None:
        """Something begins that may take long, an action or a wait (None): print what is kept and not like it."""
        with self.lock:
            if action is None or (self.alike and self._told(self.alike[0]) != self._told(action)):
                self._print()

    def _print_late(self) -> None:
        with suppress(OSError):  # whoever read it is gone: the verb's own next line meets that, too
            self._print()

    def _told(self, action: Action) -> tuple[object, ...]:
        """What is printed of an action, without its name."""
        return kind_of(action), action.kind, action.alike or action.detail, _noun(action), *self._settings(action)

    def _settings(self, action: Action) -> list[str]:
        """A change of several settings, line by line."""
        if self.done or not isinstance(action.before, Mapping) or not isinstance(action.after, Mapping):
            return []
        lines = [f"{key}: {action.before.get(key)} -> {action.after.get(key)}" for key in action.after]
        more = [f"… and {len(lines) - MAX_LINES} more (--json shows all)"] if len(lines) > MAX_LINES else []
        return [f"      {line}" for line in (*lines[:MAX_LINES], *more)]

    def _print(self) -> None:
        with self.lock:
            self.timer.cancel()
            actions, self.alike = self.alike, []
            if actions:
                self._lines(actions)

    def _lines(self, actions: Sequence[Action]) -> None:
        names = [name for action in actions for name in action.names]
        whole = not self.all_in or (self.done and kind_of(actions[0]) == "remove")
        if whole or len(names) < MANY:
            for action in actions:
                self._line(action, f"{action.name}: {action.detail}")
        else:
            first = actions[0]
            some = f"{', '.join(names[:NAMED])}, …" + ("" if self.done else f"; {self.all_in} has all")
            self._line(first, f"{len(names):,} {_noun(first)}: {first.alike or first.detail} ({some})")

    def _line(self, action: Action, said: str) -> None:
        sign, colour = SIGNS[kind_of(action)]
        click.echo(f"{click.style(sign, fg=colour)} {action.kind:<16} {said}")
        for line in self._settings(action):
            click.echo(line)


def _noun(action: Action) -> str:
    if action.kind == "grant" and action.after == "USAGE":
        return "schemas"
    return NOUNS.get(action.kind, "objects")
