"""What the parts of a pipeline file say about each other."""

# ruff: noqa: E501 - a table of files and messages

from __future__ import annotations

import re

import pytest

from cdc.errors import PipelineFileError
from cdc.pipeline import loads

HEAD = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.customers, public.orders, other.orders]}
kafka: {bootstrap: "localhost:9092"}
connect: {url: "http://localhost:8083"}
views:
  customer: {root: customers}
  order: {root: public.orders}
sinks:
"""
ES = "type: elasticsearch, url: 'http://h:9200'"
REDIS = "type: redis, url: 'redis://:pw@h:6379/0'"
LAKE = "type: iceberg, catalog_uri: c.db, warehouse: w, namespace: n"


def said(sinks: str, head: str = HEAD) -> str:
    with pytest.raises(PipelineFileError) as caught:
        loads(head + sinks, "p.yaml", {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        (f"  a: {{{ES}}}", "p.yaml:10:3: sinks.a: expected one of view, views, tables; none of them is given"),
        (f"  a: {{{ES}, view: order, tables: all}}", "sinks.a: expected one of view, views, tables; view and tables are given"),
        (f"  a: {{{ES}, views: []}}", "none of them is given"),
        (f"  a: {{{ES}, view: custmer}}", "p.yaml:10:56: sinks.a: there is no view 'custmer'\n  what to do: did you mean 'customer'?"),
        (f"  a: {{{ES}, views: [order, order]}}", "sinks.a.views: 'order' is here a second time"),
        (f"  a: {{{ES}, views: [order, customer], index: x}}", "sinks.a.index names one index"),
        (f"  a: {{{ES}, view: order, index: x, index_prefix: y}}", "sinks.a: index and index_prefix exclude each other"),
        (f"  a: {{{ES}, view: order, index_prefix: Shop-}}", "sinks.a.index_prefix: expected at most 100 lower-case letters"),
        (f"  a: {{{ES}, view: order, index_prefix: -shop}}", "sinks.a.index_prefix: expected at most 100 lower-case letters"),
        (f"  a: {{{ES}, view: order, index_prefix: {'x' * 101}}}", "sinks.a.index_prefix: expected at most 100 lower-case letters"),
        (f"  a: {{{ES}, view: order, index_prefix: x-}}\n  b: {{{ES}, view: customer, index: x-order}}", "same target as sinks.a: index 'x-order'"),
        (f"  a: {{{ES}, view: order, index_prefix: x-}}\n  b: {{{ES}, view: order, index_prefix: x-}}", "p.yaml:11:77: sinks.b writes to the same target as sinks.a: index 'x-order'\n  what to do: give one of them another index or index_prefix"),
        (f"  a: {{{ES}, tables: [custmers]}}", "'custmers' is not in source.tables\n  what to do: did you mean 'customers' or 'public.customers'? If not, add it to source.tables"),
        (f"  a: {{{ES}, view: order, index: o}}\n  b: {{{ES}, view: customer, index: o_g1}}", "sinks.b: Headwater itself makes an index of the name 'o_g1' for 'o' of sinks.a"),
        (f"  a: {{{ES}, view: order, index: o_g12_fences_w7}}\n  b: {{{ES}, view: customer, index: o}}", "sinks.a: Headwater itself makes an index of the name 'o_g12_fences_w7' for 'o' of sinks.b"),
        (f"  a: {{{ES}, tables: [orders]}}", "'orders' may be public.orders or other.orders\n  what to do: write schema.table"),
        (f"  a: {{{ES}, tables: [customers, customers]}}", "'customers' is here a second time"),
        (f"  a: {{{ES}, view: order, user: u}}", "sinks.a.user without sinks.a.password"),
        (f"  a: {{{ES}, view: order, password: p}}", "sinks.a.password without sinks.a.user"),
        (f"  a: {{{ES}, view: order, user: u, password: p, api_key: k}}", "user and api_key exclude each other"),
        (f"  a: {{{ES}, view: order}}\n  b: {{{ES}, view: order}}", "p.yaml:11:13: sinks.b writes to the same target as sinks.a: index 'order'"),
        (f"  a: {{{ES}, view: order}}\n  b: {{{ES}, view: customer, index: order}}", "same target as sinks.a: index 'order'"),
        (f"  a: {{{REDIS}, view: order}}\n  b: {{{REDIS}, tables: [public.orders], key_prefix: ''}}\n  c: {{type: redis, url: 'redis://h:6379/0', views: [customer, order]}}", "sinks.c writes to the same target as sinks.a: keys"),
        (f"  a: {{{REDIS}, view: order, key_prefix: x}}\n  b: {{{REDIS}, view: order, key_prefix: x}}", "sinks.a: keys 'xorder:'\n  what to do: give one of them another key_prefix"),
        (f"  a: {{{REDIS}, view: order}}\n  b: {{{REDIS}, view: customer, key_prefix: 'order:'}}", "p.yaml:11:77: sinks.b writes among the keys of sinks.a: order:customer:… is part of order:…"),
        (f"  a: {{{REDIS}, view: customer, key_prefix: 'x:order:'}}\n  b: {{{REDIS}, view: order, key_prefix: 'x:'}}", "sinks.a writes among the keys of sinks.b: x:order:customer:… is part of x:order:…"),
        (f"  a: {{{REDIS}, view: order}}\n  b: {{{REDIS}, view: customer, key_prefix: 'order@2:'}}", "order@2:customer:… is part of order:…"),
        (f"  a: {{{REDIS}, tables: [customers]}}\n  b: {{type: redis, url: 'redis://h:6379/3?db=00', view: order, key_prefix: 'customers:'}}", "customers:order:… is part of customers:…"),
        (f"  a: {{{REDIS}, view: order, key_prefix: 'hw:v:'}}\n  b: {{{REDIS}, view: v, key_prefix: 'hw:'}}", "sinks.b: the keys hw:v:… are Headwater's own"),
        (f"  a: {{{REDIS}, view: order, cluster: true, changes: {{}}}}", "sinks.a.changes: in a cluster no script can"),
        (f"  a: {{{REDIS}, view: order, ttl_seconds: 9, changes: {{}}}}", "sinks.a.changes: a value that ends after ttl_seconds tells nobody"),
        (f"  a: {{{LAKE}, view: order}}\n  b: {{{LAKE}, view: order}}", "same target as sinks.a: table 'n.order'"),
        (f"  a: {{{LAKE}, tables: all}}\n  b: {{{LAKE}, tables: [customers]}}", "same target as sinks.a: table 'n.customers'"),
        ("  a: {type: elasticsearch, url: 'http://h', view: order}", "sinks.a.url: the port is missing"),
        (f"  a: {{{REDIS}, view: order}}\n  b: {{type: redis, url: 'redis://H', view: order}}", "sinks.b writes to the same target as sinks.a"),
        ("  a: {type: redis, url: 'redis://127.0.0.1:7', view: order}\n  b: {type: redis, url: 'redis://localhost:7', view: order}", "sinks.b writes to the same target as sinks.a"),
        (f"  a: {{{ES}, view: order}}\n  b: {{type: elasticsearch, url: 'http://u:p@h:9200/', view: order}}", "same target as sinks.a"),
        (f"  a: {{{REDIS}, view: order, password: p}}", "a login in url and one beside it\n  what to do: keep one of them"),
        ("  a: {type: redis, url: 'redis://h', view: order, user: u}", "sinks.a.user without sinks.a.password"),
        ("  a: {type: redis, url: 'redis://h/1', view: order, cluster: true}", "a Redis Cluster has only the database 0"),
        ("  a: {type: redis, url: 'redis://h', view: order, key_prefix: '{x}'}", "without spaces and braces"),
        ("  a: {type: iceberg, catalog_uri: c.db, warehouse: w, namespace: n.m, view: order}", "sinks.a.namespace: expected 1 to 63 letters, digits and _"),
    ],
)  # fmt: skip
def test_sinks_that_do_not_fit(sinks: str, message: str) -> None:
    found = said(sinks + "\n")
    assert message in found
    assert found.startswith("p.yaml:1")


def test_targets_on_different_servers_or_of_different_kinds_are_apart() -> None:
    loads(
        HEAD + f"  a: {{{ES}, view: order}}\n  b: {{type: elasticsearch, url: 'http://other:9200', view: order}}\n"
        f"  c: {{{REDIS}, view: order}}\n  d: {{{REDIS}, view: order, key_prefix: d}}\n  e: {{{LAKE}, view: order}}\n"
        # As a prefix of text only; on another database; what is no generation's number.
        f"  l: {{{ES}, view: order, index_prefix: shop-}}\n  m: {{{ES}, view: order, index_prefix: other-}}\n"
        f"  f: {{{REDIS}, view: customer, key_prefix: order_}}\n  g: {{{REDIS}, view: customer, key_prefix: 'order@eu:'}}\n"
        "  i: {type: redis, url: 'redis://h/1', view: customer, key_prefix: 'order:'}\n"
        "  j: {type: redis, url: 'unix:///s/a', view: customer, key_prefix: 'order:'}\n"
        "  k: {type: redis, url: 'unix:///s/a?db=1', view: order}\n",
        "p.yaml",
        {},
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{root: customers}", "{root: custmers}", "p.yaml:7:20: views.customer.root: 'custmers' is not in source.tables\n  what to do: did you mean 'customers'"),
        ("{root: customers}", "{root: orders}", "views.customer.root: 'orders' may be public.orders or other.orders"),
        ("{root: customers}", "{root: zzz}", "add it to source.tables"),
        ("{root: customers}", "{root: customers, columns: []}", "p.yaml:7:31: views.customer.columns: an empty list picks no column"),
        ("{root: customers}", "{root: customers, columns: [a, {b: a}]}", "views.customer.columns: two columns are named 'a'"),
        ("{root: customers}", "{root: customers, columns: [a], fields: {a: b}}", "p.yaml:7:57: views.customer.fields: 'a' is a column of the view too"),
        ("{root: customers}", "{root: customers, key: [a, a]}", "views.customer.key: a column is here a second time"),
        ("{root: customers}", "{root: customers, fields: {_id: b}}", "views.customer: the name '_id' belongs to the target of sinks.s"),
        ("other.orders", "public.My Table", "source.tables[3]: expected schema.table or schema.* (letters a to z and A to Z, digits, _ and -; without quotes); a blank can't be in it"),
        ("{root: customers}", "{root: 'kunden€'}", "views.customer.root: expected table or schema.table (letters a to z and A to Z, digits, _ and -; without quotes); '€' can't be in it"),
        ("other.orders", "orders", "expected schema.table or schema.* (letters a to z and A to Z, digits, _ and -; without quotes)"),
        ("other.orders", "public.orders", "p.yaml:3:77: source.tables: 'public.orders' is here a second time"),
        ("other.orders", "headwater.x", "source.tables: schema 'headwater' is Headwater's own"),
        ("user: u", "user: u, setup_password: x", "source.setup_password without source.setup_user"),
        ("user: u", "user: u, format: avro", "source.format: avro needs source.registry"),
        ("user: u", 'user: u, registry: {url: "http://r", user: a}', "source.registry.user without source.registry.password"),
        ('url: "http://localhost:8083"', 'url: "http://h", user: a', "connect.user without connect.password"),
        ('"localhost:9092"', '"h:1", options: {bootstrap.servers: x}', "p.yaml:4:56: kafka.options: brokers go into kafka.bootstrap"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit(old: str, new: str, message: str) -> None:
    assert HEAD.count(old) == 1
    found = said(f"  s: {{{ES}, view: customer}}\n", HEAD.replace(old, new))
    assert message in found


@pytest.mark.parametrize("name", ["_file", "_row_id", "_last_updated_sequence_number"])
def test_iceberg_s_own_columns_are_refused(name: str) -> None:
    head = HEAD.replace("{root: customers}", f"{{root: customers, columns: [id, {{file: {name}}}]}}")
    assert f"'{name}' belongs to the target of sinks.s itself" in said(f"  s: {{{LAKE}, view: customer}}\n", head)
    loads(head + f"  s: {{{ES}, view: customer}}\n", "p.yaml", {})


def test_a_whole_schema_leaves_tables_to_the_catalogue() -> None:
    head = HEAD.replace("public.customers, public.orders, other.orders", "public.*").replace("customers}", "anything}")
    pipeline = loads(head + f"  s: {{{ES}, view: customer}}\n  t: {{{LAKE}, tables: [whatever]}}\n", "p.yaml", {})
    assert pipeline.views["customer"].root == "anything"


def test_the_name_of_stored_queries_is_free_where_nobody_stores_any() -> None:
    sinks = f"  a: {{{ES}, view: order}}\n  b: {{{ES}, view: customer, index: order_queries}}\n"
    assert loads(HEAD + sinks, "p.yaml", {}).queries == {}
    head = HEAD.replace("sinks:", "queries:\n  order: {search: a, changes: c}\nsinks:")
    sinks += f"  c: {{{REDIS}, view: order, changes: {{}}}}\n"
    assert "sinks.b: Headwater itself makes an index of the name 'order_queries' for 'order' of sinks.a" in said(
        sinks, head
    )


@pytest.mark.parametrize("own", ["fields: {n: id + 1}", "where: id > 1"])
def test_a_view_with_the_name_of_what_plain_views_share_is_refused_beside_them(own: str) -> None:
    """Two flows had one place in the log: each skipped what the other had read, and nothing said so."""
    head = HEAD.replace("sinks:", f"  main: {{root: public.orders, {own}}}\nsinks:")
    words = "sinks.s: a view with joins, fields or where can't be called 'main' beside plain views ('customer')"
    assert f"p.yaml:11:{words}" in re.sub(r":11:\d+: ", ":11:", said(f"  s: {{{ES}, views: [customer, main]}}\n", head))
    loads(head + f"  s: {{{ES}, views: [main]}}\n  t: {{{LAKE}, views: [customer, main]}}\n", "p.yaml", {})
    plain = HEAD.replace("sinks:", "  main: {root: public.orders}\nsinks:")
    loads(plain + f"  s: {{{ES}, views: [customer, main]}}\n", "p.yaml", {})
