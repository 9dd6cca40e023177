"""What the stack verbs share."""

from __future__ import annotations

import click

only_option = click.option(
    "--only",
    metavar="NAME[,NAME…]",
    help="these servers only: postgres, kafka, connect, elasticsearch, redis-cache, redis-store, registry",
)


def chosen(only: str | None) -> list[str] | None:
    """The names in a comma-separated list; None if the option wasn't given."""
    return None if only is None else [name.strip() for name in only.split(",") if name.strip()]
