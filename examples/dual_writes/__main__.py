"""Tell the story: ``python -m examples.dual_writes``. Exit 0 only if dual writes diverged and headwater converged."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from time import sleep

import click
import psycopg
import redis
from elasticsearch import ApiError, TransportError

from cdc.errors import HeadwaterError
from cdc.wording import worded
from examples.common import Passwords, Server, ensure_database
from examples.dual_writes import follower, load
from examples.dual_writes.names import (
    BY_HAND_INDEX,
    BY_HAND_PREFIX,
    DATABASE,
    HEADWATER_INDEX,
    HEADWATER_PREFIX,
    OWNER,
)
from examples.dual_writes.stores import Document, Stores

SETTLE_S = 3.0
FILL_S = 120.0
CATCH_UP_S = 60.0
NOTHING = "-"
HEADINGS = ("Postgres", "index", "cache")


def say(text: str = "") -> None:
    """One line of the story."""
    click.echo(text)


def differences(database: dict[int, Document], *others: dict[int, Document]) -> list[int]:
    """Keys whose documents are not the same everywhere."""
    keys = set(database).union(*others)
    return sorted(key for key in keys if any(_text(other.get(key)) != _text(database.get(key)) for other in others))


def table(database: dict[int, Document], search: dict[int, Document], cache: dict[int, Document]) -> list[str]:
    """The three stores side by side, one line a product."""
    wrong = differences(database, search, cache)
    lines = [f"  {'id':>3}  " + "".join(f"{title:<26}" for title in HEADINGS)]
    for key in sorted({*database, *search, *cache}):
        cells = "".join(f"{_text(store.get(key)):<26}" for store in (database, search, cache))
        lines.append(f"  {key:>3}  {cells}{'DIFFERENT' if key in wrong else 'equal'}")
    return lines


def _text(document: Document | None) -> str:
    return f"{document['name']} {document['price']} × {document['stock']}" if document else NOTHING


def compare(conninfo: str, stores: Stores) -> tuple[list[str], list[int]]:
    """The table, and the keys that differ."""
    database, search, cache = load.in_database(conninfo), stores.in_search(), stores.in_cache()
    return table(database, search, cache), differences(database, search, cache)


def by_hand(conninfo: str) -> list[int]:
    """First half: the clients write to all three stores themselves. Returns the keys that differ."""
    say("1. Dual writes: each client writes to Postgres, then to Elasticsearch and Redis")
    load.reset(conninfo)
    stores = Stores.connect(BY_HAND_INDEX, BY_HAND_PREFIX)
    try:
        stores.clear()
        for key, row in load.in_database(conninfo).items():
            stores.put(key, row)
        load.run(conninfo, stores, _indented)
        say(f"   … all clients are done; {SETTLE_S:.0f} s later:")
        sleep(SETTLE_S)
        lines, wrong = compare(conninfo, stores)
    finally:
        stores.close()
    say("\n".join(lines))
    say(f"   {len(wrong)} products differ. Nobody was told, and nothing will ever repair them.")
    return wrong


def followed(conninfo: str, env: Mapping[str, str], home: Path) -> list[int]:
    """Second half: the same load, written to Postgres only. Returns the keys that differ."""
    say("\n2. The same load through headwater: the clients write to Postgres and nothing else")
    load.reset(conninfo)
    follower.apply(env)
    say("   headwater apply: publication, slot, topic and connector are there")
    stores = Stores.connect(HEADWATER_INDEX, HEADWATER_PREFIX)
    log = home / "logs" / "dual_writes-run.log"
    try:
        with follower.running(env, log) as process:
            equal = lambda: not compare(conninfo, stores)[1]  # noqa: E731
            if not follower.wait_until(equal, FILL_S, process, log):
                raise HeadwaterError(f"The stores were not filled within {FILL_S:.0f} s.", fix=f"look at {log}")
            say("   headwater run: the shelf is in both stores")
            load.run(conninfo, None, _indented)
            follower.wait_until(equal, CATCH_UP_S, process, log)
            say(f"   … all clients are done; {SETTLE_S:.0f} s later:")
            sleep(SETTLE_S)
            lines, wrong = compare(conninfo, stores)
            say("\n".join(lines))
            same, _ = follower.verify(env)
            say(f"   headwater verify: {'every sink equals Postgres' if same else 'DIFFERENCES'}")
    finally:
        stores.close()
    return wrong if same else wrong or [0]


def afterwards(conninfo: str) -> list[int]:
    """The hand-written stores once more: time has not healed them, and the database now holds what it held then."""
    stores = Stores.connect(BY_HAND_INDEX, BY_HAND_PREFIX)
    try:
        return compare(conninfo, stores)[1]
    finally:
        stores.close()


def _indented(text: str) -> None:
    say(f"   - {text}")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the pipeline (slot, topic, connector, index) in place.")
@click.option("--only-by-hand", is_flag=True, help="Only the first half: show the failure, not the cure.")
def main(keep: bool, only_by_hand: bool) -> None:
    """Show the dual-write failure on the local stack, and the same load through headwater.

    \b
    Examples:
      headwater up && eval "$(headwater ps --env)"
      python -m examples.dual_writes
    """
    home = Path(os.environ.get("HEADWATER_HOME") or ".headwater")
    try:
        sys.exit(0 if _story(home, keep=keep, only_by_hand=only_by_hand) else 1)
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error
    except (psycopg.OperationalError, ApiError, TransportError, redis.RedisError) as error:
        raise click.ClickException(
            worded(f"A server of the local stack failed: {error}", fix="headwater up")
        ) from error


def _story(home: Path, *, keep: bool, only_by_hand: bool) -> bool:
    passwords = Passwords.load()
    conninfo = ensure_database(Server.from_environment(), DATABASE, OWNER, passwords=passwords)
    broken = by_hand(conninfo)
    if only_by_hand:
        return bool(broken)
    env = passwords.as_environment()
    try:
        left = followed(conninfo, env, home)
        still = afterwards(conninfo)
    finally:
        if not keep:
            _tidy(env)
    good = bool(broken) and still == broken and not left
    say(f"\ndual writes: {len(still)} products differ, still · headwater: {len(left)} differ")
    say("DUAL WRITES OK: they diverged, headwater converged" if good else "DUAL WRITES FAILED: not what was expected")
    return good


def _tidy(env: Mapping[str, str]) -> None:
    """Remove the pipeline and what it filled. A failing clean-up must not hide what went wrong before it."""
    try:
        follower.drop(env)
        stores = Stores.connect(HEADWATER_INDEX, HEADWATER_PREFIX)
        try:
            stores.forget()
        finally:
            stores.close()
    except HeadwaterError as error:
        click.echo(f"   the pipeline is still there: {error}", err=True)


if __name__ == "__main__":
    main()
