"""A pipeline over two small tables, as JSON or as Avro, whose columns change while somebody writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from examples.common import ensure_database
from tests.support.own_tables import OwnTables, Writing

OWNER = "evolving_owner"
ROWS = 300
TABLES = """
CREATE TABLE things (id int PRIMARY KEY, a varchar(8) DEFAULT 'new', n int, price numeric(6,2), gone text DEFAULT 'x');
CREATE TABLE parts (id int PRIMARY KEY, thing int, weight int);
"""
VIEWS: dict[str, Any] = {
    "thing": {"root": "things", "columns": ["id", "a", "n", "price"]},
    "card": {
        "root": "things",
        "columns": ["id", "n"],
        "children": {"parts": {"table": "parts", "on": {"id": "thing"}, "columns": ["id", "weight"]}},
        "aggregates": {
            "heavy": {"table": "parts", "on": {"id": "thing"}, "value": "sum(weight * 2)", "where": "weight > 10"}
        },
    },
}
TRUTH = """
SELECT 'thing' AS view, id::text AS id, jsonb_build_object(
    'id', id, 'a', a, 'n', n, 'price', price::text) FROM things
UNION ALL
SELECT 'card', t.id::text, jsonb_build_object('id', t.id, 'n', t.n,
    'parts', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', p.id, 'weight', p.weight) ORDER BY p.id), '[]')
              FROM parts p WHERE p.thing = t.id),
    'heavy', (SELECT sum(p.weight * 2) FROM parts p WHERE p.thing = t.id AND p.weight > 10)) FROM things t
"""


@dataclass
class Evolving(OwnTables):
    """The pipeline.

    Attributes:
        form: ``source.format``.
    """

    form: str = "json"

    @property
    def owner(self) -> str:
        return OWNER

    def prepare(self, *_: object) -> None:
        self.conninfo = ensure_database(self.stack.endpoints, self.name, OWNER)
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(TABLES.encode())
            connection.execute(
                "INSERT INTO things SELECT i, CASE WHEN i %% 3 > 0 THEN 'a' || i END, i, i / 3.0 "
                "FROM generate_series(1, %s) i",
                [ROWS],
            )
            connection.execute(
                "INSERT INTO parts SELECT i, i %% %s + 1, i %% 20 FROM generate_series(1, %s) i", [ROWS, 2 * ROWS]
            )
        self.write_pipeline()
        self.run("apply", "--wait")
        self.readable(allowed=False)

    def write_pipeline(self) -> None:
        source = {"format": self.form, "registry": {"url": self.stack.endpoints.registry_url}}  # JSON does not ask it
        sinks = {"cache": self.cache(VIEWS), "search": self.search(["thing"], mapping={"n": {"type": "long"}})}
        self.write_own(["public.things", "public.parts"], VIEWS, sinks, source)

    def held(self) -> dict[str, Any]:
        """What both sinks show."""
        return {
            "thing": self.in_redis("thing"),
            "thing by search": self.in_elasticsearch("thing"),
            "card": self.in_redis("card"),
        }

    def wanted(self) -> dict[str, Any]:
        """What they should show."""
        truth = self.truth(TRUTH)
        return truth | {"thing by search": truth["thing"]}

    def assert_settled(self, seconds: float = 90.0) -> None:
        """Both sinks show what the tables hold."""
        wanted = self.wanted()
        found = self.settled(self.held, wanted, seconds)
        for view, documents in wanted.items():
            wrong = {key: (found[view].get(key), one) for key, one in documents.items() if found[view].get(key) != one}
            assert not wrong, f"{view}: {len(wrong)} differ, like {next(iter(wrong.items()))}\n{self.log()}"
            assert found[view].keys() == documents.keys()


class Writer(Writing):
    """Writes rows of both tables."""

    least = 100

    def __init__(self, conninfo: str) -> None:
        super().__init__(conninfo)
        self.largest = 20_000

    def row(self, connection: psycopg.Connection[Any]) -> None:
        rng = self.random
        key, kind = rng.randrange(1, ROWS + 50), rng.random()
        if kind < 0.15:
            connection.execute("DELETE FROM things WHERE id = %s", [key])
        else:
            connection.execute(
                "INSERT INTO things (id, a, n, price) VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE "
                "SET a = excluded.a, n = excluded.n, price = excluded.price",
                [key, rng.choice((None, "", "b")), rng.randrange(self.largest), rng.randrange(1000) / 100],
            )
        connection.execute(
            "UPDATE parts SET weight = %s, thing = %s WHERE id = %s",
            [rng.randrange(40), key, rng.randrange(1, 2 * ROWS)],
        )
