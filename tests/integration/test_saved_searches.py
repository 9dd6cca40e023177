"""The whole way: rows of Postgres are queries, other rows are held against them, and what comes of it is sent.

Postgres -> Debezium -> Kafka -> `run` (killed twice) -> Redis and OpenSearch -> a webhook and a topic.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from ruamel.yaml import YAML

from cdc.log.client import Kafka
from cdc.pipeline import load
from operations.standing.queries import list_queries
from tests.support.migrating import Migrating
from tests.support.receiver import SECRET, Receiver
from tests.support.sent_matches import in_topic, matches_of, written
from tests.support.servers import require, servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

TABLE = "CREATE TABLE saved_searches (name text PRIMARY KEY, query jsonb, owner text);"
VIEWS = {"thing": {"root": "things", "columns": ["id", "n", "code"]}, "saved": {"root": "saved_searches"}}


class Saving(Migrating):
    """Things, and the searches that stand on them."""

    receiver: Receiver

    @property
    def topic(self) -> str:
        return f"matches-of-{self.name}"

    def kinds(self) -> dict[str, dict[str, Any]]:
        search = {"type": "opensearch", "url": self.stack.endpoints.opensearch_url, "views": [self.view("thing")]}
        return {"cache": {**self.cache(self.views), "changes": {}}, "search": search}

    def write_pipeline(self) -> None:
        super().write_pipeline()
        push = {"hook": {"url": self.receiver.url, "secret": SECRET}, "log": {"topic": self.topic, "batch": 10}}
        part = {"search": "search", "changes": "cache", "push": push, "saved": {"view": self.view("saved")}}
        with self.file.open("a") as out:
            YAML().dump({"queries": {self.view("thing"): part}}, out)

    def stand(self) -> dict[str, tuple[str, Any]]:
        """Name -> state, query; as the verb lists them."""
        found = list_queries(load(self.file, self.environment()), self.view("thing"))["queries"]
        return {one["name"]: (one["state"], one["query"]) for one in found}


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Saving]:
    stack = servers()
    require(stack, "opensearch")
    stack.up()
    stack.up(["opensearch"])
    made = Saving(stack, tmp_path, sinks=("cache", "search"), views=VIEWS, more=TABLE, tables=["public.saved_searches"])
    with closing(Receiver()) as made.receiver, made.running():
        yield made
        Kafka(load(made.file, made.environment())).delete([made.topic])


def below(number: int) -> dict[str, Any]:
    return {"range": {"n": {"lt": number}}}


def test_rows_are_queries_and_other_rows_are_held_against_them_whatever_is_killed(saving: Saving) -> None:
    chance = random.Random(11)
    queries: dict[str, dict[str, Any]] = {f"q{number}": below(number) for number in range(0, 50, 10)}

    def save(connection: psycopg.Connection[Any], name: str, query: dict[str, Any] | None) -> None:
        connection.execute("DELETE FROM saved_searches WHERE name = %s", [name])
        queries.pop(name, None)
        if query is not None:
            queries[name] = query
            connection.execute("INSERT INTO saved_searches VALUES (%s, %s, 'ann')", [name, Jsonb(query)])

    with psycopg.connect(saving.conninfo, autocommit=True) as connection:
        for name, query in list(queries.items()):
            save(connection, name, query)
        saving.settled(lambda: set(saving.stand()), set(queries))
        for turn in range(3):
            for _ in range(60):
                connection.execute(
                    "UPDATE things SET n = %s WHERE id = %s", [chance.randrange(60), chance.randrange(90)]
                )
                save(connection, f"q{chance.randrange(12)}", chance.choice([None, below(chance.randrange(60))]))
                time.sleep(0.02)
            save(connection, "wrong", {"rage": {"n": turn}})
            if turn < 2:
                saving.kill()
                saving.launch()
        wanted = {name: ("refused", None) if name == "wrong" else ("active", query) for name, query in queries.items()}
        assert saving.settled(saving.stand, wanted) == wanted
        rows = connection.execute("SELECT id, n FROM things").fetchall()
    known = {name: query["range"]["n"]["lt"] for name, query in queries.items() if name != "wrong"}
    truth = {str(key): {name for name, most in known.items() if n is not None and n < most} for key, n in rows}
    truth = {key: names for key, names in truth.items() if names}
    pipeline = load(saving.file, saving.environment())
    assert saving.settled(lambda: in_topic(written(pipeline, saving.topic)), truth) == truth
    taken = [(one.name, one.data) for one in saving.receiver.taken()]
    assert saving.settled(lambda: matches_of([(o.name, o.data) for o in saving.receiver.taken()]), truth) == truth, (
        taken
    )
    report = {one["to"]: one for one in saving.status()["push"]}
    assert {one["state"] for one in report.values()} == {"delivering"} and set(report) == {"webhook", "topic", "search"}
    assert json.dumps(report["search"]["why"]) == "null"
