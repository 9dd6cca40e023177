"""The example of dbt over a warehouse: its pipeline under another name, dbt as a user calls it, the models' rows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import psycopg
from ruamel.yaml import YAML

from examples.analytics import load as example
from tests.support.joined import Joined
from tests.support.own_tables import Writing

Rows = Counter[str]
HERE = Path(example.__file__).parent
DBT_SECONDS = 900.0
# What an order was, by the source's own word: a trigger writes it down.
SEEN = """
CREATE TABLE seen (change text, order_id int, status text, total numeric);
CREATE FUNCTION saw() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO seen VALUES ('delete', OLD.order_id, NULL, NULL);
  ELSE INSERT INTO seen VALUES (lower(TG_OP), NEW.order_id, NEW.status, NEW.total); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER saw AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION saw();
"""


def counted(rows: list[Any]) -> Rows:
    """Rows as JSON has them, to be compared whatever their order: numbers by value, however many digits they show."""
    return Counter(json.dumps(row, default=lambda number: str(number.normalize()), sort_keys=True) for row in rows)


def exact(text: str) -> Any:
    """JSON, with numbers as they are written."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


class Analysed(Joined):
    """The example behind a runner."""

    def write_pipeline(self) -> None:
        document = YAML(typ="safe").load((HERE / "pipeline.yaml").read_text())
        lake = self.folder / "warehouse"
        document["name"] = document["source"]["database"] = self.name
        document["source"]["heartbeat_seconds"] = 1
        document["sinks"]["warehouse"] |= {"catalog_uri": str(lake / "catalog.db"), "warehouse": str(lake)}
        document["sinks"]["warehouse"]["trigger_seconds"] = 1
        document["engine"] = {"state_dir": str(self.folder / "state")}
        self.write_file(document)

    def cut(self, name: str) -> None:
        """Give now a name."""
        self.run("as-of", "--tag", name, "--wait", "180")

    def expected(self) -> dict[str, Rows]:
        """Model -> its rows, by plain SQL."""
        with psycopg.connect(self.conninfo) as connection:
            query = "SELECT model, row::text FROM (" + (HERE / "truth.sql").read_text().rstrip(";\n") + ") t"
            rows = connection.execute(query.encode()).fetchall()
        found: dict[str, list[Any]] = {}
        for name, text in rows:
            found.setdefault(name, []).append(exact(text))
        return {name: counted(listed) for name, listed in found.items()}

    def watch(self) -> None:
        """Have the source write down from now on what becomes of orders."""
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(SEEN)

    def seen(self) -> Rows:
        """What the trigger has written down."""
        with psycopg.connect(self.conninfo) as connection:
            rows = connection.execute("SELECT to_jsonb(seen)::text FROM seen").fetchall()
        return counted([exact(text) for (text,) in rows])

    # -- dbt ----------------------------------------------------------------------------------------------------------

    def dbt(self, *words: str, database: str = "now") -> subprocess.CompletedProcess[str]:
        """Call dbt."""
        lake = self.folder / "warehouse"
        mine = {
            "HEADWATER_HOME": str(self.folder),
            "ANALYTICS_CATALOG_URI": f"sqlite:///{lake}/catalog.db",
            "ANALYTICS_DATABASE": str(self.database(database)),
            "DBT_TARGET_PATH": str(self.folder / f"target-{database}"),
        }
        command = [sys.executable, "-m", "examples.analytics", *words]
        environment = {**self.environment(), **mine, "NO_COLOR": "1", "DBT_USE_COLORS": "false"}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=DBT_SECONDS
        )

    def build(self, *options: str, database: str = "now") -> str:
        """``dbt build``, which must go well; what it says."""
        done = self.dbt("build", *options, database=database)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def database(self, name: str) -> Path:
        """DuckDB's file."""
        return self.folder / f"{name}.duckdb"

    def model(self, name: str, columns: str = "*", where: str = "true", database: str = "now") -> Rows:
        """A model's rows."""
        with duckdb.connect(str(self.database(database)), read_only=True) as connection:
            text = f"SELECT to_json(t)::VARCHAR FROM (SELECT {columns} FROM {name} WHERE {where}) t"
            return counted([exact(row) for (row,) in connection.execute(text).fetchall()])


class Ordering(Writing):
    """Orders come, grow and go: each with its lines, in one transaction of several statements."""

    pause, least = 0.005, 50

    def __init__(self, conninfo: str, seed: int) -> None:
        super().__init__(conninfo)
        self.random, self.next = Random(seed), 10_000 * (seed + 1)

    def row(self, connection: psycopg.Connection[Any]) -> None:
        rng = self.random
        order = self.next if rng.random() < 0.3 else rng.randint(41, example.ORDERS)
        quantity, price = rng.randint(1, 5), Decimal(rng.randrange(100, 20_000)) / 100
        with connection.transaction():
            if order == self.next:
                self.next += 1
                new = "INSERT INTO orders VALUES (%s, 1, '2026-10-15', 'open', 0)"
                connection.execute(new.encode(), [order])
            # Under the order's lock: of two writers the second sees the first's lines.
            connection.execute("SELECT FROM orders WHERE order_id = %s FOR UPDATE", [order])
            added = connection.execute(
                "INSERT INTO order_lines SELECT %s, 1 + coalesce(max(line), 0), 'lamp', %s, %s FROM order_lines"
                " WHERE order_id = %s RETURNING line",
                [order, quantity, price, order],
            )
            assert added.rowcount == 1
            time.sleep(rng.random() / 100)
            connection.execute("UPDATE orders SET total = total + %s WHERE order_id = %s", [quantity * price, order])
