"""Verification of larger tables: memory that does not grow with them, and pages that reach what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from psycopg import sql
from redis import Redis

from cdc.join.tree import Aggregate, Node
from cdc.join.view import JoinedView
from cdc.view import View
from connectors.postgres import connect
from connectors.tables.catalogue import read_catalogue
from tests.integration.test_truth_joined import shops_down, staff_sums, staff_up
from tests.support.servers import servers
from tests.support.source import SourceDatabase
from tests.support.truth import by_truth, fill, origin, people_database, tables_of
from truth.columns import with_singles
from truth.digest import digest
from truth.expected import digests, expected
from truth.rows import identity, looked_up, read_rows, rows_of_ids, snapshot
from truth.sample import sampled_ids

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900), pytest.mark.sampled(part=0)]

FEW, MANY = 20_000, 200_000
# A process of its own for each size, because only the peak of a whole process can be asked for.
PEAK = """
import json, resource, sys
from cdc.pipeline import Pipeline
from operations.verify.report import verified
from operations.verify.verifier import Asked
if __name__ == "__main__":
    report = verified(Pipeline.model_validate(json.loads(sys.stdin.read())), Asked())
    [view] = report["sinks"][0]["views"]
    print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, view]))
"""


@pytest.fixture(scope="module")
def people() -> Iterator[SourceDatabase]:
    with people_database() as database:
        yield database


def pipeline(people: SourceDatabase, folder: Path) -> Mapping[str, Any]:
    plain = people.pipeline("public.staff")
    people.pipelines.clear()
    raw = {**plain.model_dump(mode="json", exclude_defaults=True), "engine": {"state_dir": str(folder)}}
    raw["source"] = {**raw["source"], "tables": ["public.*"], "password": people.password}
    raw["source"]["setup_password"] = people.password
    raw["row_store"] = {"url": people.endpoints.redis_store_url}
    raw["views"] = {
        "person": {
            "root": "staff",
            "refs": {
                "above": {"table": "staff", "on": {"boss": "id"}, "columns": ["name"]},
                "shop": {"table": "shops", "on": {"region": "region", "number": "number"}},
            },
            "aggregates": {"below": {"table": "staff", "on": {"id": "boss"}, "value": "count(*)"}},
        }
    }
    url = people.endpoints.redis_cache_url
    raw["sinks"] = {"cache": {"type": "redis", "url": url, "view": "person", "key_prefix": f"{people.name}:"}}
    return raw


def staff(people: SourceDatabase, count: int) -> None:
    people.execute(
        "TRUNCATE staff, shops",
        "INSERT INTO shops SELECT 'r' || g % 4, g, repeat('shop', 5), now() FROM generate_series(1, 100) g",
        "INSERT INTO staff (id, name, boss, region, number, pay) SELECT g, repeat('name', 20) || g, g / 10, "
        f"'r' || g % 4, g % 100, g FROM generate_series(1, {count}) g",
        "CREATE INDEX IF NOT EXISTS staff_boss ON staff (boss)",
        "ANALYZE staff",
    )


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(people: SourceDatabase, tmp_path: Path) -> None:
    """All rows are missing in the sink, so that the list of differences is as long as the table."""
    servers().up(["redis-cache"])
    raw, peaks = pipeline(people, tmp_path), []
    for count in (FEW, MANY):
        staff(people, count)
        done = subprocess.run(
            [sys.executable, "-c", PEAK], input=json.dumps(raw), capture_output=True, text=True, check=False,
            env=os.environ, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        peak, view = json.loads(done.stdout)
        assert (view["expected"], view["differences"], len(view["missing"])) == (count, count, 20)
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 80, f"MB at {FEW:,} and {MANY:,} rows: {peaks}"
    with Redis.from_url(people.endpoints.redis_cache_url) as redis:
        assert not list(redis.scan_iter(match=f"{people.name}:*", count=1000))


def digests_of(people: SourceDatabase, view: JoinedView, root: Any) -> set[bytes]:
    """Of all documents, from whole tables."""
    return {digest(with_singles(view, orjson.dumps(one))) for one in by_truth(people, root).values()}


@pytest.mark.parametrize("kept", [0, 40, 100_000], ids=["all in pages", "some kept", "all kept"])
@pytest.mark.parametrize("tree", [staff_up, shops_down, staff_sums])
def test_pages_give_what_whole_tables_give(
    people: SourceDatabase, tree: Any, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truth.pages.KEPT_ROWS", kept)
    for name in ("PAGE", "PAGE_OF_REFERENCES", "PAGE_WITHOUT_INDEX"):
        monkeypatch.setattr(f"truth.pages.{name}", 7)
    root = tree(tables_of(people))
    view = JoinedView("v", root.table, root.table.primary_key, root.columns, root=root)
    for seed in range(8):
        fill(people, seed, staff=60)
        wanted = digests_of(people, view, root)
        with snapshot(origin(people)) as connection:
            found = {key: of["document"] for key, of in digests(view, expected(view, connection, None), ["document"])}
            assert set(found.values()) == wanted
            some = [*list(found)[::3], "nobody", "7|x", "12345678901234567890"]
            of_keys = dict(digests(view, expected(view, connection, None, some), ["document"]))
        assert {key: of["document"] for key, of in of_keys.items()} == {key: found[key] for key in some if key in found}


def test_the_pages_test_can_fail(people: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truth.pages.KEPT_ROWS", 0)
    root = staff_up(tables_of(people))
    other = replace(root, refs=(replace(root.refs[0], on=(("number", "id"),)), *root.refs[1:]))
    view = JoinedView("v", other.table, other.table.primary_key, other.columns, root=other)
    fill(people, 1, staff=60)
    wanted = digests_of(people, view, root)
    with snapshot(origin(people)) as connection:
        found = {of["document"] for _, of in digests(view, expected(view, connection, None), ["document"])}
    assert found != wanted


# What one table has, and the other has no room for, or no right to. A rule of `pet` came when a row broke it already.
ODD = """
DROP TABLE IF EXISTS lands, marks, pets, guests, stays;
DROP DOMAIN IF EXISTS iso2, pet;
CREATE DOMAIN iso2 AS text CHECK (VALUE ~ '^[A-Z]{2}$');
CREATE DOMAIN pet AS character(3);
CREATE TABLE lands (code iso2 PRIMARY KEY, name text);
CREATE TABLE marks (id oid PRIMARY KEY, name text);
CREATE TABLE pets (kind pet PRIMARY KEY, name text);
CREATE TABLE guests (id numeric(12,0) PRIMARY KEY, land text, mark bigint, pet pet);
CREATE TABLE stays (id int PRIMARY KEY, guest numeric(10,0));
CREATE INDEX ON stays (guest);
INSERT INTO lands VALUES ('NO', 'Norway');
INSERT INTO marks VALUES (4294967295, 'last');
INSERT INTO pets VALUES ('cat', 'a cat');
INSERT INTO guests VALUES (1, 'NO', 4294967295, 'cat'), (99999999999, 'NOR', 5000000000, 'dog'), (2, 'no', -1, 'cat');
INSERT INTO stays VALUES (10, 1), (11, 2);
ALTER DOMAIN pet ADD CHECK (VALUE <> 'dog') NOT VALID
"""


class Planned:
    """A connection that has each query planned, too, as for a table that is too large to be read whole."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.plans = connection, list[str]()
        for way in ("seqscan", "hashjoin", "mergejoin"):
            connection.execute(f"SET LOCAL enable_{way} = off")

    def transaction(self) -> Any:
        return self.connection.transaction()

    def execute(self, query: Any) -> Any:
        lines = self.connection.execute(sql.SQL("EXPLAIN ") + query).fetchall()
        self.plans.append("\n".join(line for (line,) in lines))
        return self.connection.execute(query)


def test_values_that_the_other_table_can_not_have_join_nothing(
    people: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row store and its documents that are as they must be the whole command ended as an error of Postgres."""
    monkeypatch.setattr("truth.pages.KEPT_ROWS", 0)
    people.execute(*ODD.strip().split(";\n"))
    people.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {people.replicator}")
    names = ("lands", "marks", "pets", "guests", "stays")
    with connect(origin(people)) as connection:
        found = read_catalogue(connection, [f"public.{name}" for name in names]).tables
    lands, marks, pets, guests, stays = (found[f"public.{name}"] for name in names)
    name = (("name", "name"),)
    refs = tuple(
        Node(one, "ref", table, ((one, table.primary_key[0]),), name)
        for one, table in (("land", lands), ("mark", marks), ("pet", pets))
    )
    children = (Node("stays", "child", stays, (("id", "guest"),), (("id", "id"),)),)
    root = Node("guests", "root", guests, (), (("id", "id"),), refs=refs, children=children)
    view = JoinedView("v", guests, ("id",), root.columns, root=root)
    with snapshot(origin(people)) as connection:
        got = {one.key: orjson.loads(one.document) for one in expected(view, connection, None)}
        few = {one.key for one in expected(view, connection, None, ["1", "99999999999", "9999999999999", "x"])}
        whole = View("lands", lands, ("code",), (("name", "name"),))
        assert [row["name"] for page in rows_of_ids(connection, whole, ["name"], ["USA", "NO"]) for row in page] == [
            "Norway"
        ]
        planned: Any = Planned(connection)
        for table, column, value in (
            (lands, "code", "NO"),
            (marks, "id", "7"),
            (stays, "guest", "1"),
            (pets, "kind", "cat"),
        ):
            looked_up(planned, table, [column], [column], [(value,)])
        assert all("Index Cond" in plan for plan in planned.plans), planned.plans
    assert got == {
        "1": {
            "id": "1",
            "land": {"name": "Norway"},
            "mark": {"name": "last"},
            "pet": {"name": "a cat"},
            "stays": [{"id": 10}],
        },
        "2": {"id": "2", "land": None, "mark": None, "pet": {"name": "a cat"}, "stays": [{"id": 11}]},
        "99999999999": {"id": "99999999999", "land": None, "mark": None, "pet": None, "stays": []},
    }
    assert few == {"1", "99999999999"}


PARTED = """
CREATE TYPE lane AS ENUM ('air', 'Sea');
CREATE TABLE legs (id int, lane lane, day date, at timestamptz, "local" timestamp, host inet, name text,
    PRIMARY KEY (id, lane, day, at, "local", host)) PARTITION BY RANGE (at);
CREATE TABLE legs_all PARTITION OF legs DEFAULT;
INSERT INTO legs SELECT n, 'air', '2026-02-28', '2026-01-01T00:00:00Z', '1999-12-31T23:59:59.5', '10.0.0.1', 'n' || n
    FROM generate_series(1, 9) AS n;
INSERT INTO legs VALUES (10, 'Sea', '0044-03-15 BC', '2026-01-01T00:00:00.25Z', '10000-01-01', '::1/64', 'far'),
    (11, 'Sea', 'infinity', '-infinity', '0001-01-01 BC', '10.0.0.0/8', 'ends')
"""


def test_a_row_is_found_by_its_key_of_moments_labels_and_addresses(people: SourceDatabase) -> None:
    """For one document of a partitioned table, whose key has a moment, the whole table was read."""
    people.execute(*PARTED.strip().split(";\n"))
    people.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {people.replicator}")
    with connect(origin(people)) as connection:
        legs = read_catalogue(connection, ["public.legs"]).tables["public.legs"]
    view = View("legs", legs, legs.primary_key, (("name", "name"),))
    with snapshot(origin(people)) as connection:
        [rows] = read_rows(connection, legs, ["name", *legs.primary_key])
        ids = {identity(view, row): row["name"] for row in rows}
        assert len(ids) == 11
        planned: Any = Planned(connection)
        near = [one for one, name in ids.items() if name not in ("far", "ends")]
        none = [near[0].replace("2026-02-28", "2026-02-30"), near[0].replace("air", "rail"), f"{near[0]}|1"]
        found = [row["name"] for page in rows_of_ids(planned, view, ["name"], [*near, *none]) for row in page]
        assert sorted(found) == [f"n{n}" for n in range(1, 10)]
        assert planned.plans and all("Index Cond" in plan for plan in planned.plans), planned.plans
        found = [row["name"] for page in rows_of_ids(connection, view, ["name"], list(ids)) for row in page]
        assert sorted(found) == sorted(ids.values())


def test_samples_are_random_repeatable_and_of_the_size(people: SourceDatabase) -> None:
    staff(people, MANY)
    table = tables_of(people)["staff"]
    view = JoinedView("v", table, ("id",), (("id", "id"),), root=staff_sums(tables_of(people)))
    with snapshot(origin(people)) as connection:
        first, again, other = (sampled_ids(connection, view, 500, seed) for seed in (1, 1, 2))
        assert first == again and set(first) != set(other)
        assert len(set(first)) == 500
        assert max(map(int, first)) > MANY // 2 > min(map(int, first))
        rows = [row for page in rows_of_ids(connection, view, ["name"], first) for row in page]
    assert len(rows) == 500


def test_an_aggregate_over_pages_needs_its_index_only_for_speed(
    people: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truth.pages.KEPT_ROWS", 0)
    staff(people, 3_000)
    tables = tables_of(people)
    item = Aggregate("n", tables["staff"], (("id", "boss"),), "count")
    root = replace(staff_up(tables), refs=(), aggregates=(item,), columns=(("id", "id"),))
    view = JoinedView("v", root.table, ("id",), root.columns, root=root)
    found = []
    for statement in ("SELECT 1", "DROP INDEX staff_boss"):
        people.execute(statement)
        with snapshot(origin(people)) as connection:
            found.append(dict(digests(view, expected(view, connection, None), ["document"])))
    assert found[0] == found[1] and len(found[0]) == 3_000
