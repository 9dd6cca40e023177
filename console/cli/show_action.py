"""How plan, apply and drop show one action."""

from __future__ import annotations

from collections.abc import Mapping

import click

from connectors.actions import Action

SIGNS = {"create": ("+", "green"), "remove": ("-", "red"), "change": ("~", "yellow")}
# A connector's configuration is long; plan shows what differs, and --json shows all.
MAX_LINES = 12


def kind_of(action: Action) -> str:
    """Whether the action creates, removes or changes."""
    if action.after is None:
        return "remove"
    return "create" if action.before is None else "change"


def show_action(action: Action, *, done: bool = False) -> None:
    """Print an action in one line; a change of several settings line by line.

    Args:
        action: what will be, or was, done.
        done: it was done: no need to list its settings again.
    """
    sign, colour = SIGNS[kind_of(action)]
    click.echo(f"{click.style(sign, fg=colour)} {action.kind:<16} {action.name}: {action.detail}")
    if done or not isinstance(action.before, Mapping) or not isinstance(action.after, Mapping):
        return
    for key in list(action.after)[:MAX_LINES]:
        click.echo(f"      {key}: {action.before.get(key)} -> {action.after.get(key)}")
    if len(action.after) > MAX_LINES:
        click.echo(f"      … and {len(action.after) - MAX_LINES} more (--json shows all)")
