"""Fill the outbox: ``python -m examples.events.load``. The same events every time; a second run changes nothing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from examples.common import PostgresEndpoint
from examples.filling import Row, command, fill

OWNER = "events_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
START, MINUTES = datetime(2026, 3, 2, 6, tzinfo=UTC), 720
AIRPORTS = ("EWR", "JFK", "LGA")
# (when it was written, aggregate's type, its id, what happened, payload, when it happened)
Said = tuple[datetime, str, str, str, dict[str, Any], datetime]


def rows(seed: int = 1) -> Iterator[tuple[str, list[Row]]]:
    """(table, its rows): events in the order in which they were written."""
    events = sorted(_day(Random(seed)), key=lambda one: one[0])
    yield (
        "outbox",
        [
            (uuid.UUID(int=number), kind, about, what, json.dumps(payload), at)
            for number, (_, kind, about, what, payload, at) in enumerate(events, 1)
        ],
    )


def _day(chance: Random) -> Iterator[Said]:
    """Twelve hours of a shop at an airport."""
    for minute in range(MINUTES):
        now = START + timedelta(minutes=minute)
        yield from _shop(chance, minute, now)
        delay = max(-5, int(chance.gauss(10, 20)))
        payload = {"origin": chance.choice(AIRPORTS), "delay": delay, "wind": round(chance.random() * 30, 1)}
        # Some departures are reported hours later.
        told = now + timedelta(minutes=chance.choice((0, 1, 2, 2, 3, 200)))
        yield told, "flight", f"HW{minute}", "departed", payload, now


def _shop(chance: Random, minute: int, now: datetime) -> Iterator[Said]:
    for _ in range(3):
        view = {
            "ip": f"10.0.0.{chance.randint(1, 9)}",
            "user": f"u{chance.randint(1, 60)}",
            "ms": chance.randint(1, 900),
        }
        yield now, "page", chance.choice(("/", "/cart", "/größen")), "viewed", view, now
    yield now, "search", f"s{minute}", "searched", {"words": chance.choice(("log", "table", "Æther"))}, now
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        then = now + timedelta(seconds=chance.randint(1, 1_500))
        yield then, "search", f"s{minute}", "clicked", {"page": f"/p{chance.randint(1, 5)}"}, then
    yield now, "order", f"o{minute}", "ordered", {"total": f"{chance.randint(100, 9_999) / 100:.2f}"}, now
    if chance.random() < 0.9:
        then = now + timedelta(seconds=chance.randint(5, 900))
        yield then, "order", f"o{minute}", "paid", {}, then
    if chance.random() < 0.5:
        yield now, "login", f"u{chance.randint(1, 6)}", "failed", {}, now + timedelta(seconds=chance.randint(0, 20))


def load(endpoint: PostgresEndpoint, database: str = "events", owner: str = OWNER) -> str:
    """See ``examples.filling.fill``; returns the owner's connection string."""
    return fill(endpoint, database, owner, SCHEMA, rows)


main = command("events", load, "the outbox", "twelve hours of a shop at an airport")

if __name__ == "__main__":
    main()
