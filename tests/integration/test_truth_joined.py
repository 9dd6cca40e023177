"""The truth of joined views against SQL that Postgres runs itself, on random small tables."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from elasticsearch import Elasticsearch

from cdc.catalogue import Catalogue, Table
from cdc.join.tree import Aggregate, Node, Order
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline, Source
from cdc.resolve import resolve_views
from cdc.truth_joined import documents, used_columns
from connectors.catalogue import read_catalogue
from connectors.postgres import connect
from console.compare import digest
from console.truth import expected_digests, read_rows, snapshot
from console.verify import verify_report
from deploy.local.endpoints import Endpoints
from deploy.local.stack import LocalStack
from sinks.configure import sink_config
from sinks.contract import Item, Outcome, Sink
from sinks.factory import open_sink
from tests.support.source import SourceDatabase, source_database

pytestmark = pytest.mark.stack

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
ROOT = Path(__file__).parents[2]
SPARK = """
import json, pickle, sys
from pathlib import Path
from pydantic import SecretStr
from pyspark.sql import SparkSession
from cdc.pipeline import Source
from console.truth import expected_digests
view, source, password = pickle.loads(Path(sys.argv[1]).read_bytes())
source = Source.model_validate_json(source).model_copy(update={"password": SecretStr(password)})
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = spark.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = spark.config("spark.sql.session.timeZone", "UTC").getOrCreate()
found = expected_digests(view, source, spark, ["document"])["document"]
print(json.dumps({identity: digest.hex() for identity, digest in found.items()}))
"""
AVERAGES = {"numeric(12,2)": 6, "numeric": 16}


@pytest.fixture(scope="module")
def people() -> Iterator[SourceDatabase]:
    """A database of this file's own; of the servers it needs only Postgres."""
    local = LocalStack()
    local.up(["postgres"])
    endpoints: Endpoints = local.endpoints
    with source_database(endpoints) as database:
        database.execute(*TABLES.strip().split(";\n"))
        database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {database.replicator}")
        yield database


@pytest.fixture(scope="module")
def tables(people: SourceDatabase) -> dict[str, Table]:
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


# -- trees ------------------------------------------------------------------------------------------------------------


def whole(table: Table, name: str, kind: Any, *on: tuple[str, str], **rest: Any) -> Node:
    columns = rest.pop("columns", tuple((column.name, column.name) for column in table.columns))
    return Node(name, kind, table, on, columns, **rest)


def staff_up(tables: dict[str, Table]) -> Node:
    """References: composite, to itself twice over, one table twice."""
    staff, shops = tables["staff"], tables["shops"]
    shop = whole(shops, "shop", "ref", ("region", "region"), ("number", "number"))
    above = whole(staff, "above", "ref", ("boss", "id"), columns=(("name", "name"), ("weight", "heavy")), refs=(shop,))
    boss = whole(staff, "boss_", "ref", ("boss", "id"), refs=(above, replace(shop, name="shop_")))
    return whole(staff, "staff", "root", refs=(boss, shop))


def shops_down(tables: dict[str, Table]) -> Node:
    """Children, grandchildren through a junction table, order and limits."""
    tag = whole(tables["tags"], "tag", "ref", ("tag", "id"), columns=(("word", "word"),))
    link = whole(tables["staff_tags"], "tags", "child", ("id", "staff"), refs=(tag,), order_by=(Order("note"),))
    team = whole(tables["staff"], "team", "child", ("id", "boss"), columns=(("id", "id"),), limit=2, children=(link,))
    orders = (
        (Order("pay", descending=True, nulls_first=False), Order("name")),
        (Order("score"), Order("born", descending=True, nulls_first=True)),
        (Order("factor", nulls_first=False), Order("seen", descending=True, nulls_first=False)),
        (Order("active"), Order("weight")),
    )
    edge = (("region", "region"), ("number", "number"))
    children = tuple(
        whole(tables["staff"], f"staff{at}", "child", *edge, order_by=one, limit=at or None, children=(link, team))
        for at, one in enumerate(orders)
    )
    return whole(tables["shops"], "shops", "root", children=children)


def staff_sums(tables: dict[str, Table]) -> Node:
    """Every aggregate over every kind of column, by a self reference and under a reference."""
    staff = tables["staff"]
    wanted = [("count", None, False)]
    for column in ("pay", "factor", "big"):
        wanted += [(f, column, False) for f in ("sum", "avg", "min", "max", "count")] + [("count", column, True)]
    wanted += [("count", column, True) for column in ("score", "name", "seen", "active", "born", "weight")]
    wanted += [(f, c, False) for f in ("min", "max") for c in ("score", "name", "seen", "active", "born", "weight")]
    # factor has 1, 1.0 and 1.00, equal in three spellings: which one is the least is nobody's business.
    wanted = [one for one in wanted if not (one[1] == "factor" and one[0] in ("min", "max"))]
    items = tuple(
        Aggregate(f"{f}_{c}_{d}", staff, (("id", "boss"),), f, d, c)  # type: ignore[arg-type]
        for f, c, d in wanted
    )
    boss = whole(staff, "boss_", "ref", ("boss", "id"), columns=(("id", "id"),), aggregates=items)
    return whole(staff, "staff", "root", columns=(("id", "id"),), refs=(boss,), aggregates=items)


@pytest.mark.parametrize("tree", [staff_up, shops_down, staff_sums])
def test_documents_are_what_sql_gives(people: SourceDatabase, tables: dict[str, Table], tree: Any) -> None:
    root = tree(tables)
    rows = 0
    for seed in range(25):
        fill(people, seed)
        wanted, found = by_sql(people, root), by_truth(people, root)
        assert found.keys() == wanted.keys()
        for identity, document in wanted.items():
            got = orjson.loads(orjson.dumps(found[identity]))
            assert got == orjson.loads(document), f"seed {seed}, row {identity}"
        rows += len(wanted)
    assert rows > 50


def test_the_comparison_can_fail(people: SourceDatabase, tables: dict[str, Table]) -> None:
    """Another order of the children is another document: the test above looks at it."""
    root = shops_down(tables)
    first, *rest = root.children
    other = replace(root, children=(replace(first, order_by=(Order("name", descending=True),)), *rest))
    differs = False
    for seed in range(25):
        fill(people, seed)
        wanted, found = by_sql(people, root), by_truth(people, other)
        differs = differs or any(digest(found[one]) != digest(document) for one, document in wanted.items())
    assert differs


# -- Spark SQL --------------------------------------------------------------------------------------------------------


def test_fields_and_conditions_see_the_assembled_row(
    people: SourceDatabase, tables: dict[str, Table], tmp_path: Path
) -> None:
    """Digests of a whole view, with Spark SQL over children's rows and over the assembled row, against plain SQL."""
    staff = tables["staff"]
    items = (
        Aggregate("rich", staff, (("id", "boss"),), "count", where="pay > 1 AND active"),
        Aggregate("twice", staff, (("id", "boss"),), "sum", value="number * 2"),
        Aggregate("pays", staff, (("id", "boss"),), "sum", value="pay"),
        Aggregate("last", staff, (("id", "boss"),), "max", value="seen"),
    )
    link = whole(tables["staff_tags"], "tags", "child", ("id", "staff"), columns=(("tag", "tag"),))
    boss = whole(staff, "boss_", "ref", ("boss", "id"), columns=(("name", "called"), ("weight", "weight")))
    root = whole(staff, "staff", "root", columns=(("id", "id"),), refs=(boss,), children=(link,), aggregates=items)
    fields = {
        "title": "concat(boss_.name, '/', name)",
        "many": "size(tags)",
        "least": "array_min(transform(tags, t -> t.tag))",
        "paid": "pays + pay",
        "year": "year(last)",
        "doubled": "twice + rich",
    }
    view = JoinedView("people", staff, ("id",), root.columns, fields, "id % 2 = 0", root)
    fill(people, 1, staff=200)
    # NaN has no place in Spark's decimals, infinity none in its timestamps.
    people.execute("UPDATE staff SET pay = NULL WHERE pay = 'NaN'")
    people.execute("UPDATE staff SET seen = NULL WHERE NOT isfinite(seen)")
    got = digests_by_spark(view, origin(people), tmp_path)
    wanted = {identity: digest(document).hex() for identity, document in by_sql_with_fields(people).items()}
    assert got == wanted
    assert len(got) > 20


def digests_by_spark(view: JoinedView, source: Source, folder: Path) -> dict[str, str]:
    """In a process of its own: a Spark session leaves sockets behind, which pytest counts as errors."""
    asked = folder / "asked"
    asked.write_bytes(pickle.dumps((view, source.model_dump_json(), source.password.get_secret_value())))
    command = [sys.executable, "-c", SPARK, str(asked)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str] = orjson.loads(done.stdout.strip().splitlines()[-1])
    return found


def by_sql_with_fields(people: SourceDatabase) -> dict[str, bytes]:
    moment = SHAPES["timestamptz"].format("c.last")
    query = f"""
    SELECT s.id::text, json_build_object('id', s.id,
      'boss_', (SELECT json_build_object('called', b.name, 'weight', b.weight) FROM staff b WHERE b.id = s.boss),
      'tags', coalesce((SELECT json_agg(json_build_object('tag', tag) ORDER BY tag)
        FROM staff_tags WHERE staff = s.id), '[]'),
      'rich', c.rich, 'twice', c.twice, 'pays', c.pays::text, 'last', {moment},
      'title', (SELECT b.name || '/' || s.name FROM staff b WHERE b.id = s.boss),
      'many', (SELECT count(*) FROM staff_tags WHERE staff = s.id),
      'least', (SELECT min(tag) FROM staff_tags WHERE staff = s.id),
      'paid', (c.pays + s.pay)::text, 'year', extract(year FROM c.last)::int, 'doubled', c.twice + c.rich)::text
    FROM staff s, LATERAL (
      SELECT count(*) FILTER (WHERE pay > 1 AND active) AS rich, sum(number * 2) AS twice, sum(pay) AS pays,
        max(seen) AS last FROM staff WHERE boss = s.id) c
    WHERE s.id % 2 = 0"""
    with people.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # A real is one number in many spellings; digests take the number.
        found = connection.execute(query).fetchall()
    return {identity: singled(document) for identity, document in found}


def singled(document: str) -> bytes:
    from console.compare import single

    value = orjson.loads(document)
    if value["boss_"] is not None:
        value["boss_"]["weight"] = single(value["boss_"]["weight"])
    return orjson.dumps(value)


# -- verify -----------------------------------------------------------------------------------------------------------

VIEWS: dict[str, Any] = {
    "shop_card": {
        "root": "shops",
        "children": {
            "team": {
                "table": "staff",
                "on": {"region": "region", "number": "number"},
                "columns": ["id", "weight"],
                "order_by": "pay desc, name",
                "limit": 3,
                "refs": {"chief": {"table": "staff", "on": {"boss": "id"}, "columns": ["name", {"weight": "heavy"}]}},
            }
        },
        "aggregates": {
            "lightest": {"table": "staff", "on": {"region": "region", "number": "number"}, "value": "min(weight)"},
            "pays": {"table": "staff", "on": {"region": "region", "number": "number"}, "value": "sum(pay)"},
        },
    }
}


def joined_pipeline(people: SourceDatabase, folder: Path) -> Pipeline:
    """One joined view in two key spaces and an index."""
    plain = people.pipeline("public.staff")
    people.pipelines.clear()
    raw = {**plain.model_dump(mode="json", exclude_defaults=True), "views": VIEWS, "engine": {"state_dir": str(folder)}}
    raw["source"] = {**raw["source"], "tables": ["public.*"], "password": people.password}
    raw["source"]["setup_password"] = people.password
    raw["row_store"] = {"url": people.endpoints.redis_store_url}
    cache = {"type": "redis", "url": people.endpoints.redis_cache_url, "view": "shop_card"}
    raw["sinks"] = {
        "one": {**cache, "key_prefix": f"{people.name}:1:"},
        "two": {**cache, "key_prefix": f"{people.name}:2:"},
        "search": {
            "type": "elasticsearch",
            "url": people.endpoints.elasticsearch_url,
            "view": "shop_card",
            "index": people.name,
        },
    }
    return Pipeline.model_validate(raw)


@contextmanager
def opened(pipeline: Pipeline, name: str, view: JoinedView) -> Iterator[Sink]:
    sink = open_sink(sink_config(name, pipeline.sinks[name], [view], {}))
    try:
        sink.setup()
        yield sink
    finally:
        sink.close()


def test_verify_compares_joined_views(
    people: SourceDatabase, tables: dict[str, Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real sinks: equal at first, whatever way a real is spelled; then each kind of difference is named."""
    LocalStack().up(["redis-cache", "elasticsearch"])
    fill(people, 3, staff=60)
    # A shop of its own to be changed deep inside, whatever the seed gave.
    people.execute(
        "INSERT INTO shops VALUES ('z', 1, 'last', NULL)",
        "INSERT INTO staff (id, name, boss, region, number, weight) VALUES (900, 'a', 900, 'z', 1, 1e-45)",
    )
    pipeline = joined_pipeline(people, tmp_path)
    [view] = resolve_views(pipeline, Catalogue({t.qualified: t for t in tables.values()}), "one")
    assert isinstance(view, JoinedView)
    with snapshot(origin(people)) as connection:
        rows = {n: chain.from_iterable(read_rows(connection, t)) for n, t in view.tree.tables().items()}
        found = {identity: orjson.dumps(document) for identity, document in documents(view.tree, view.key, rows)}
    spelled = {identity: document.replace(b"1e-45", b"1.4e-45") for identity, document in found.items()}
    assert spelled["z|1"] != found["z|1"]
    try:
        for name in pipeline.sinks:
            with opened(pipeline, name, view) as sink:
                written = sink.write(view.name, [Item(key, 1, document) for key, document in spelled.items()])
                assert {answer.outcome for answer in written} == {Outcome.WRITTEN}
        assert refreshed(pipeline)
        readings = counted(monkeypatch)
        report = verify_report(pipeline)
        assert report["equal"], report
        assert readings == [["document"]], "three sinks, one view: Postgres is read once"
        assert report["source_rows"] == {"public.shops": len(found)}
        assert [sink["views"][0]["compared"] for sink in report["sinks"]] == [len(found)] * 3
        spoil(pipeline, view, found)
        refreshed(pipeline)
        readings.clear()
        report = verify_report(pipeline, ["one", "search"], wait=1.5)
        assert not report["equal"]
        for sink in report["sinks"]:
            [shown] = sink["views"]
            assert (shown["changed"], shown["missing"], shown["extra"]) == (["z|1"], ["a|0"], ["nowhere|9"])
        assert len(readings) >= 2, "a look again must read Postgres again"
    finally:
        clean(pipeline, people)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The readings of Postgres from now on; each is made as ever."""
    made: list[list[str]] = []

    def counting(view: Any, source: Any, spark: Any, forms: Any) -> Any:
        made.append(sorted(forms))
        return expected_digests(view, source, spark, forms)

    monkeypatch.setattr("console.truth.expected_digests", counting)
    return made


def spoil(pipeline: Pipeline, view: JoinedView, found: dict[str, bytes]) -> None:
    """In two sinks: a name two levels down, a document too few and one too many."""
    wrong = orjson.loads(found["z|1"])
    wrong["team"][0]["chief"]["name"] = "somebody"
    for name in ("one", "search"):
        with opened(pipeline, name, view) as sink:
            items = [Item("z|1", 2, orjson.dumps(wrong)), Item("a|0", 2, None), Item("nowhere|9", 2, found["z|1"])]
            assert {answer.outcome for answer in sink.write(view.name, items)} == {Outcome.WRITTEN}


def refreshed(pipeline: Pipeline) -> bool:
    with Elasticsearch(pipeline.sinks["search"].url, request_timeout=60) as client:
        client.indices.refresh(index=f"{pipeline.sinks['search'].index}*")
    return True


def clean(pipeline: Pipeline, people: SourceDatabase) -> None:
    with Elasticsearch(pipeline.sinks["search"].url, request_timeout=60) as client:
        names = f"{people.name},{people.name}_g*"
        for index in client.indices.get(index=names, ignore_unavailable=True, expand_wildcards="all").body:
            client.indices.delete(index=index)
    with redis.Redis.from_url(pipeline.sinks["one"].url) as client:
        for pattern in (f"{people.name}:*", f"hw:v:{{{people.name}:*"):
            for key in client.scan_iter(match=pattern, count=1000):
                client.delete(key)
