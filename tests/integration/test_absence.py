"""Absence in a stream that stands still: time goes on with the heartbeat, and what comes after all is put right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from ruamel.yaml import YAML

from examples.filling import fill
from examples.social import load as social
from tests.support.joined import Joined
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

SCHEMA = """
CREATE TABLE happened (id int PRIMARY KEY, type text NOT NULL, about text, at timestamptz);
"""
WITHIN, DELAY = 3, 1
VIEWS = f"""
unpaid:
  root: happened
  match:
    time: at
    delay: {DELAY} seconds
    within: {WITHIN} seconds
    keep: alone
    first: {{where: "type = 'ordered'", key: about}}
    then: {{where: "type = 'paid'", key: about}}
"""


class Orders(Joined):
    """A table of events, of which some do not happen."""

    def prepare(self, *_: object) -> None:
        schema = self.folder / "schema.sql"
        schema.write_text(SCHEMA)
        self.count = 0
        self.conninfo = fill(self.stack.endpoints, self.name, social.OWNER, schema, lambda: iter(()))
        self.write_pipeline()
        self.run("apply", "--wait")

    def write_pipeline(self) -> None:
        yaml = YAML(typ="safe")
        document = yaml.load((self.folder_of(social) / "pipeline.yaml").read_text())
        cache = document["sinks"]["cache"] | {"views": [self.view("unpaid")], "key_prefix": f"{self.name}:"}
        document |= {
            "name": self.name,
            "views": {self.view(name): view for name, view in yaml.load(VIEWS).items()},
            "sinks": {"cache": cache},
            "engine": {"state_dir": str(self.folder / "state")},
        }
        del document["row_store"]
        tables = ["public.happened"]
        document["source"] |= {"database": self.name, "setup_user": social.OWNER, "tables": tables}
        document["source"]["heartbeat_seconds"] = 1
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def happen(self, kind: str, about: str, at: datetime) -> str:
        """An event; its id."""
        self.count += 1
        with psycopg.connect(self.conninfo) as connection:
            connection.execute("INSERT INTO happened VALUES (%s, %s, %s, %s)", (self.count, kind, about, at))
        return str(self.count)

    def unpaid(self) -> set[str]:
        """What is said to be unpaid."""
        return set(self.in_redis("unpaid"))


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    """Captured and followed."""
    stack = servers()
    stack.up()
    made = Orders(stack, tmp_path_factory.mktemp("orders"))
    with made.running():
        yield made


def now() -> datetime:
    """By the events' clock: they always come an hour late, and nothing may be taken for absent because of that."""
    return datetime.now(UTC) - timedelta(hours=1)


def test_what_does_not_happen_is_told_though_nothing_happens(orders: Orders) -> None:
    paid, unpaid = orders.happen("ordered", "one", now()), orders.happen("ordered", "two", now())
    orders.happen("paid", "one", now() + timedelta(seconds=1))
    assert orders.settled(orders.unpaid, {unpaid}) == {unpaid}
    assert paid not in orders.unpaid()


def test_what_comes_after_all_and_counts_takes_it_back(orders: Orders) -> None:
    began = now()
    unpaid = orders.happen("ordered", "three", began)
    before = orders.unpaid() - {unpaid}
    until = time.monotonic() + WITHIN - 0.5
    while time.monotonic() < until:
        assert orders.unpaid() == before
        time.sleep(0.1)
    assert orders.settled(orders.unpaid, before | {unpaid}) == before | {unpaid}
    # The newest event time of the log is still that of the order: by the log this is not late.
    orders.happen("paid", "three", began + timedelta(seconds=2))
    assert orders.settled(orders.unpaid, before) == before
    assert not orders.dead_letters()
