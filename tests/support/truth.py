"""Random small tables for joined views, and the documents of a tree as SQL that Postgres runs itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from cdc.catalogue import Table
from cdc.join.tree import Aggregate, Node
from cdc.pipeline import Source
from connectors.postgres import connect
from connectors.tables.catalogue import read_catalogue
from tests.support.servers import servers
from tests.support.source import SourceDatabase, source_database
from truth.joins import documents, used_columns
from truth.rows import read_rows, snapshot

TABLES = """
CREATE TABLE shops (region text COLLATE "C", number int, name text COLLATE "C", opened timestamptz,
  PRIMARY KEY (region, number));
CREATE TABLE staff (id int PRIMARY KEY, name text COLLATE "C", boss int, region text COLLATE "C", number int,
  pay numeric(12,2), factor numeric, score float8, weight real, born date, seen timestamptz, active bool, big bigint);
CREATE TABLE tags (id int PRIMARY KEY, word text COLLATE "C");
CREATE TABLE staff_tags (staff int, tag int, note text COLLATE "C", PRIMARY KEY (staff, tag));
"""
# How Postgres writes what documents have; each gives json.
SHAPES = {
    "numeric": "to_json({}::text)",
    "float8": "CASE WHEN {0} IN ('NaN', 'Infinity', '-Infinity') THEN to_json({0}::text) ELSE to_json({0}) END",
    "float4": "CASE WHEN {0} IN ('NaN', 'Infinity', '-Infinity') THEN to_json({0}::text) ELSE to_json({0}) END",
    "timestamptz": "to_json(CASE WHEN isfinite({0}) THEN regexp_replace(rtrim(to_char({0}, "
    """'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '\\.$', '') || 'Z' ELSE {0}::text END)""",
}
AVERAGES = {"numeric(12,2)": 6, "numeric": 16}


@contextmanager
def people_database() -> Iterator[SourceDatabase]:
    """A database with those tables; of the servers it needs only Postgres."""
    local = servers()
    local.up(["postgres"])
    with source_database(local.endpoints) as database:
        database.execute(*TABLES.strip().split(";\n"))
        database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {database.replicator}")
        yield database


def tables_of(people: SourceDatabase) -> dict[str, Table]:
    names = [f"public.{name}" for name in ("shops", "staff", "tags", "staff_tags")]
    with connect(origin(people)) as connection:
        found = read_catalogue(connection, names).tables
    return {table.name: table for table in found.values()}


def origin(people: SourceDatabase) -> Source:
    source = people.pipeline("public.staff").source
    people.pipelines.clear()  # nothing was applied, so there is nothing to drop
    return source


def fill(people: SourceDatabase, seed: int, staff: int = 30) -> None:
    """Random rows: few values, so that rows meet; NULLs and dangling references everywhere."""
    rng = random.Random(seed)
    maybe = lambda *values: rng.choice((None, *values))  # noqa: E731
    moment = lambda: f"2013-01-0{rng.randint(1, 3)} 10:00:00.{rng.choice(('0', '5', '45', '000001'))}+00"  # noqa: E731
    regions = ("a", "b", "a|b", "é")
    with people.connect() as connection, connection.transaction():
        connection.execute("TRUNCATE shops, staff, tags, staff_tags")
        for region in regions[: rng.randint(1, 4)]:
            for number in range(rng.randint(0, 3)):
                row = (region, number, maybe("x", "y", "\ud7ff", "𝄞"), maybe(moment(), "infinity"))
                connection.execute("INSERT INTO shops VALUES (%s, %s, %s, %s)", row)
        for id in range(rng.randint(staff // 2, staff)):
            values = (
                id, maybe("ann", "Bob", "é", "z"), maybe(*range(12)), maybe(*regions), maybe(0, 1, 2),
                maybe("1.50", "-2.25", "9999999999.99", "NaN"),
                maybe("1", "1.0", "1.00", "0.000000001", "1e25", "-7.5"),
                maybe(0.1, 0.25, -3.0, 1e300, -1e300, float("nan"), float("inf")), maybe(0.1, 1e-45, 3.5),
                maybe("2013-01-01", "1969-12-31", "infinity", "-infinity"), maybe(moment(), moment(), "-infinity"),
                maybe(True, False), maybe(2**63 - 1, -5, 7),
            )  # fmt: skip
            connection.execute(f"INSERT INTO staff VALUES ({', '.join(['%s'] * len(values))})", values)
        for id in range(5):
            connection.execute("INSERT INTO tags VALUES (%s, %s)", (id, maybe("red", "blue")))
        for pair in {(rng.randint(0, staff), rng.randint(0, 6)) for _ in range(staff)}:
            connection.execute("INSERT INTO staff_tags VALUES (%s, %s, %s)", (*pair, maybe("n")))


# -- the same tree as SQL ---------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def shaped(kind: str, value: str) -> str:
    return SHAPES.get(kind, "to_json({})").format(value)


def row_json(node: Node, alias: str) -> str:
    """SQL for a row's json: columns, references, children and aggregates as correlated subqueries."""
    parts = []
    for source, name in node.columns:
        parts.append((name, shaped(node.table.by_name[source].base_type, f"{alias}.{quoted(source)}")))
    for number, below in enumerate(node.nested):
        inner = f"{alias}_{number}"
        select = f"SELECT {row_json(below, inner)} AS j FROM public.{below.table.name} {inner}"
        select += f" WHERE {on(below, alias, inner)}"
        if below.kind == "child":
            limit = "" if below.limit is None else f" LIMIT {below.limit}"
            select = f"SELECT coalesce(json_agg(j), '[]') FROM ({select} ORDER BY {order(below, inner)}{limit}) s"
        parts.append((below.name, f"({select})"))
    for number, item in enumerate(node.aggregates):
        inner = f"{alias}_a{number}"
        where = on(item, alias, inner) + (f" AND ({item.where})" if item.where else "")
        parts.append((item.name, f"(SELECT {total(item, inner)} FROM public.{item.table.name} {inner} WHERE {where})"))
    return "json_build_object(" + ", ".join(f"'{name}', {value}" for name, value in parts) + ")"


def on(edge: Node | Aggregate, above: str, inner: str) -> str:
    return " AND ".join(f"{above}.{quoted(left)} = {inner}.{quoted(right)}" for left, right in edge.on)


def order(node: Node, alias: str) -> str:
    said = []
    for one in node.order_by:
        direction, nulls = "DESC" if one.descending else "ASC", "FIRST" if one.nulls_first else "LAST"
        said.append(f"{alias}.{quoted(one.column)} {direction} NULLS {nulls}")
    return ", ".join([*said, *(f"{alias}.{quoted(name)}" for name in node.table.primary_key)])


def total(item: Aggregate, alias: str) -> str:  # noqa: PLR0911 (one return a function)
    if item.value is None:
        return "to_json(count(*))"
    column = item.table.by_name.get(item.value)
    value = f"{alias}.{quoted(item.value)}" if column else item.value
    kind = column.type_name if column else "integer"
    base = column.base_type if column else "int4"
    if item.function == "count":
        return f"to_json(count({'DISTINCT ' if item.distinct else ''}{value}))"
    if item.function in ("min", "max"):
        if base == "bool":
            return f"to_json({'bool_and' if item.function == 'min' else 'bool_or'}({value}))"
        return shaped(base, f"{item.function}({value})")
    if kind.startswith("numeric"):
        # Thirty digits after the point make the quotient long enough to be rounded once only.
        if item.function == "avg":
            quotient = f"round(sum({value})::numeric(60,30) / count({value}), {AVERAGES[kind]})"
            return f"to_json({quotient if kind != 'numeric' else f'trim_scale({quotient})'}::text)"
        return f"to_json({f'sum({value})' if kind != 'numeric' else f'trim_scale(sum({value}))'}::text)"
    if item.function == "avg":
        return f"to_json((sum({value})::numeric(60,30) / count({value}))::float8)"
    return f"to_json(sum({value}))"


def by_sql(people: SourceDatabase, root: Node) -> dict[str, Any]:
    key = "jsonb_build_array(" + ", ".join(f"r.{quoted(name)}" for name in root.table.primary_key) + ")"
    with people.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(
            f"SELECT {key}::text, ({row_json(root, 'r')})::text FROM public.{root.table.name} r"
        ).fetchall()
    return {str(orjson.loads(identity)): document.encode() for identity, document in found}


def by_truth(people: SourceDatabase, root: Node, evaluate: Any = None) -> dict[str, Any]:
    key = root.table.primary_key
    used = used_columns(root, key)
    with snapshot(origin(people)) as connection:
        rows = {
            name: [row for rows in read_rows(connection, table, used[name]) for row in rows]
            for name, table in root.tables().items()
        }
        found = dict(documents(root, key, rows, evaluate))
    names = dict(root.columns)
    return {str([document[names[one]] for one in key]): document for document in found.values()}
