"""Unchanged large values (TOAST) through real Debezium, by policy.toast. FAULTS 8; docs/decisions/toast.md."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.snapshots.snapshot import wait_snapshot
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

# Every one holds thousands of bytes and is stored out of line.
COLUMNS = {
    "t": ("text", "s"),
    "j": ("jsonb", "jsonb_build_object('s', s)"),
    "y": ("bytea", "convert_to(s, 'UTF8')"),
    "x": ("xml", "('<a>' || s || '</a>')::xml"),
    "vb": ("varbit", "(SELECT string_agg((g * 7919)::bit(32)::text, '') FROM generate_series(1, 900) g)::varbit"),
    "texts": ("text[]", "ARRAY[s, s]"),
    "ints": ("int[]", "(SELECT array_agg(g * 7919) FROM generate_series(1, 3000) g)"),
    "smalls": ("int2[]", "(SELECT array_agg(g::int2) FROM generate_series(1, 3000) g)"),
    "numerics": ("numeric[]", "(SELECT array_agg(g * 1.5) FROM generate_series(1, 3000) g)"),
    "times": ("timestamptz[]", "(SELECT array_agg(now() + g * interval '1 s') FROM generate_series(1, 3000) g)"),
    "ids": ("uuid[]", "(SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 900))"),
    "enums": ("mood[]", "(SELECT array_agg('ok'::mood) FROM generate_series(1, 3000))"),
}
# Debezium does not recognise its own placeholder for uuid[]: preflight refuses such a column with reselect.
RESELECTED = [name for name in COLUMNS if name != "ids"]
LONG = "(SELECT string_agg(md5(g::text || n::text), '') FROM generate_series(1, 300) g)"


def table(source: SourceDatabase, columns: list[str]) -> None:
    ddl = ", ".join(f"{name} {COLUMNS[name][0]}" for name in columns)
    values = ", ".join(COLUMNS[name][1] for name in columns)
    source.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        f"CREATE TABLE wide (a int, b text, n int DEFAULT 0, {ddl}, PRIMARY KEY (b, a))",
        *(f"ALTER TABLE wide ALTER {name} SET STORAGE EXTERNAL" for name in columns),
        f"INSERT INTO wide SELECT n, 'k' || n, 0, {values} FROM (SELECT n, {LONG} AS s FROM generate_series(1, 3) n) q",
    )


def captured(source: SourceDatabase, policy: str, *tables: str) -> Pipeline:
    pipeline = source.pipeline(*tables, policy={"toast": policy})
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    return pipeline


def rows(source: SourceDatabase, pipeline: Pipeline, name: str = "public.wide") -> dict[str, dict[str, Any]]:
    return {key: row for key, row in source.latest(pipeline.topic(name)).items() if row is not None}


@pytest.mark.parametrize(("policy", "columns"), [("full", list(COLUMNS)), ("reselect", RESELECTED)])
def test_every_value_survives_an_update_that_does_not_touch_it(
    source: SourceDatabase, policy: str, columns: list[str]
) -> None:
    table(source, columns)
    pipeline = captured(source, policy, "public.wide")
    snapshot = rows(source, pipeline)
    assert len(snapshot) == 3
    source.execute("UPDATE wide SET n = 1 WHERE a < 3")
    assert eventually(lambda: sorted(row["n"] for row in rows(source, pipeline).values()) == [0, 1, 1])
    for key, row in rows(source, pipeline).items():
        assert {**row, "n": 0} == snapshot[key]


def test_full_also_survives_a_changed_key_and_partitions_and_a_move_between_them(source: SourceDatabase) -> None:
    table(source, ["t", "y", "numerics", "ids"])
    source.execute(
        "CREATE TABLE part (id int, d int, body text, n int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)",
        "CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (10) TO (20)",
        f"INSERT INTO part SELECT n, n, {LONG}, 0 FROM generate_series(1, 4) n",
        "CREATE TABLE by_index (k int NOT NULL UNIQUE, body text, n int)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_k_key",
        f"INSERT INTO by_index SELECT n, {LONG}, 0 FROM generate_series(1, 2) n",
    )
    pipeline = captured(source, "full", "public.wide", "public.part", "public.by_index")
    assert plan_pipeline(pipeline) == []  # the key is still known, although FULL no longer names its index
    before = rows(source, pipeline)
    parts = rows(source, pipeline, "public.part")
    source.execute(
        "UPDATE wide SET b = 'moved' WHERE a = 1",
        "UPDATE part SET n = 1 WHERE id < 3",
        "UPDATE part SET d = 15 WHERE id = 3",
        "DELETE FROM part WHERE id = 4",
        "UPDATE by_index SET n = 1",
        "UPDATE by_index SET k = 9 WHERE k = 2",
    )
    assert eventually(lambda: '{"k": 9}' in rows(source, pipeline, "public.by_index"))
    moved, was = rows(source, pipeline)['{"a": 1, "b": "moved"}'], before['{"a": 1, "b": "k1"}']
    assert moved == {**was, "b": "moved"}
    now = rows(source, pipeline, "public.part")
    assert sorted(now) == ['{"d": 1, "id": 1}', '{"d": 15, "id": 3}', '{"d": 2, "id": 2}']
    assert now['{"d": 15, "id": 3}']["body"] == parts['{"d": 3, "id": 3}']["body"]
    assert now['{"d": 1, "id": 1}'] == {**parts['{"d": 1, "id": 1}'], "n": 1}
    source.execute("CREATE TABLE part3 PARTITION OF part FOR VALUES FROM (20) TO (30)")
    late = plan_pipeline(pipeline)
    assert [(action.kind, action.name) for action in late] == [
        ("replica-identity", "public.part"),
        ("trigger", "public.part3"),
    ]
    assert apply(pipeline).actions == late
    assert plan_pipeline(pipeline) == []
    keyed = rows(source, pipeline, "public.by_index")
    assert {key: len(row["body"]) for key, row in keyed.items()} == {'{"k": 1}': 9600, '{"k": 9}': 9600}


@pytest.mark.parametrize("policy", ["full", "reselect"])
def test_value_changed_earlier_in_the_same_transaction(source: SourceDatabase, policy: str) -> None:
    """Re-selection without its cache brought back the value from before the transaction in one case of ten."""
    source.execute("CREATE TABLE doc (id int PRIMARY KEY, n int DEFAULT 0, body text)")
    source.execute(f"INSERT INTO doc SELECT n, 0, {LONG} FROM generate_series(1, 150) n")
    pipeline = captured(source, policy, "public.doc")

    def body(number: int) -> str:
        return "".join(hashlib.sha256(f"{number}.{part}".encode()).hexdigest() for part in range(80))

    with source.connect() as connection:
        for number in range(1, 151):
            with connection.transaction():
                connection.execute("UPDATE doc SET body = %s WHERE id = %s", [body(number), number])
                connection.execute("UPDATE doc SET n = 1 WHERE id = %s", [number])
    assert eventually(lambda: all(row["n"] == 1 for row in rows(source, pipeline, "public.doc").values()))
    now = rows(source, pipeline, "public.doc")
    assert {key: row["body"] for key, row in now.items()} == {json.dumps({"id": n}): body(n) for n in range(1, 151)}


def test_allow_leaves_a_placeholder_behind(source: SourceDatabase) -> None:
    """What the other policies are for: if Debezium ever fills the value in itself, this test says so."""
    table(source, ["t", "y"])
    pipeline = captured(source, "allow", "public.wide")
    source.execute("UPDATE wide SET n = 1 WHERE a = 1")
    assert eventually(lambda: rows(source, pipeline)['{"a": 1, "b": "k1"}']["n"] == 1)
    row = rows(source, pipeline)['{"a": 1, "b": "k1"}']
    assert row["t"] == "__debezium_unavailable_value"
    assert row["y"] != ""


@pytest.mark.parametrize("policy", ["full", "reselect"])
def test_capture_does_not_break_the_applications_updates(source: SourceDatabase, policy: str) -> None:
    """Postgres 18 refuses updates under REPLICA IDENTITY FULL when a generated column is not published."""
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, body text, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO t VALUES (1, 'x')",
    )
    pipeline = captured(source, policy, "public.t")
    source.execute("UPDATE t SET body = 'y'", "DELETE FROM t WHERE id = 9")
    assert eventually(lambda: rows(source, pipeline, "public.t") == {'{"id": 1}': {"id": 1, "body": "y"}})
