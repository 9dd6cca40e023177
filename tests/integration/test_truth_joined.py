"""The truth of joined views against SQL that Postgres runs itself, on random small tables."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.catalogue import Table
from cdc.join.tree import Aggregate, Node, Order
from cdc.join.view import JoinedView
from cdc.pipeline import Source
from tests.support.source import SourceDatabase
from tests.support.truth import SHAPES, by_sql, by_truth, fill, origin, people_database, tables_of
from truth.digest import digest

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

ROOT = Path(__file__).parents[2]
SPARK = """
import json, pickle, sys
from pathlib import Path
from pydantic import SecretStr
from pyspark.sql import SparkSession
from cdc.pipeline import Source
from truth.rows import snapshot
from truth.expected import digests, expected
view, source, password = pickle.loads(Path(sys.argv[1]).read_bytes())
source = Source.model_validate_json(source).model_copy(update={"password": SecretStr(password)})
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = spark.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = spark.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with snapshot(source) as connection:
    found = dict(digests(view, expected(view, connection, spark), ["document"]))
print(json.dumps({identity: of["document"].hex() for identity, of in found.items()}))
"""


@pytest.fixture(scope="module")
def people() -> Iterator[SourceDatabase]:
    with people_database() as database:
        yield database


@pytest.fixture(scope="module")
def tables(people: SourceDatabase) -> dict[str, Table]:
    return tables_of(people)


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
    from truth.digest import single

    value = orjson.loads(document)
    if value["boss_"] is not None:
        value["boss_"]["weight"] = single(value["boss_"]["weight"])
    return orjson.dumps(value)
