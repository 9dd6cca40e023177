"""Java's old calendar, by which JDBC reads dates: exactly what it changes of days before 1582-10-15 is told."""

from __future__ import annotations

import datetime as dt

import pytest

from connectors.apply import apply
from connectors.snapshots.snapshot import wait_snapshot
from tests.support.servers import servers
from tests.support.source import eventually, source_database

pytestmark = pytest.mark.stack

DAYS = ("0001-12-31", "1500-03-01", "1582-10-04", "1582-10-05", "1582-10-14", "1582-10-15", "1900-01-01")
TABLE = "CREATE TABLE d (id int PRIMARY KEY, d date, ts timestamp, da date[], tsa timestamp[], tza timestamptz[])"
STREAMED, EPOCH = 100, dt.date(1970, 1, 1)


def later(days: str, by: int = 10) -> str:
    return str(dt.date.fromisoformat(days) + dt.timedelta(days=by))


def test_the_days_that_the_old_calendar_lacks_move_by_ten() -> None:
    local = servers()
    local.up(["postgres", "kafka", "connect"])
    with source_database(local.endpoints) as database:
        pipeline = database.pipeline("public.d")
        database.execute(TABLE, *(_insert(nth, day) for nth, day in enumerate(DAYS)))
        apply(pipeline)
        wait_snapshot(pipeline)
        database.execute(*(_insert(STREAMED + nth, day) for nth, day in enumerate(DAYS)))
        topic = pipeline.topic("public.d")
        assert eventually(lambda: len(database.latest(topic)) == 2 * len(DAYS))
        for row in database.latest(topic).values():
            assert row is not None
            day, streamed = DAYS[row["id"] % STREAMED], row["id"] >= STREAMED
            lacking = later(day) if "1582-10-05" <= day <= "1582-10-14" else day
            assert str(EPOCH + dt.timedelta(days=row["d"])) == (day if streamed else lacking)
            assert _day(row["ts"]) == day
            assert str(EPOCH + dt.timedelta(days=row["da"][0])) == lacking
            assert row["tza"][0][:10] == lacking
            assert (_day(row["tsa"][0]) == day) == (day >= "1582-10-15")


def _insert(id: int, day: str) -> str:
    return f"INSERT INTO d VALUES ({id}, '{day}', '{day} 10:00', '{{{day}}}', '{{{day} 10:00}}', '{{{day} 10:00+00}}')"


def _day(microseconds: int) -> str:
    return str((dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)).date())
