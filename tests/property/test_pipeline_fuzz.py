"""Whatever a file holds: `load` gives a pipeline or an error with a place, in bounded time, and tells no secret."""

# ruff: noqa: E501, RUF005 - long lists of odd texts

from __future__ import annotations

import io
import json
import re
import time
import traceback
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, PipelineFileError
from cdc.gather import parts_of
from cdc.join.expressions import mentions, over_struct, tokens
from cdc.join.order import TextError, parse_aggregate, parse_order
from cdc.join.view import JoinedView
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.template import template
from cdc.resolve.views import resolve_views, view_tables

# No plain name: a plain name may be shown where it stands as a key.
SECRET = "Zq9!vLe k#hunter2"
ENV = {
    "HEADWATER_SOURCE_PASSWORD": SECRET,
    "HEADWATER_SETUP_PASSWORD": SECRET,
    "CONNECT_PASSWORD": SECRET,
    "ELASTICSEARCH_PASSWORD": SECRET,
    "REDIS_PASSWORD": SECRET,
    "PORT": "7",
}
FULL = re.sub(r"^( *)#(?=[a-z_]+:)", r"\1", template(), flags=re.MULTILINE)
# Comments are most of the template; without them a mutation hits something.
BARE = "".join(line for line in FULL.splitlines(keepends=True) if not line.lstrip().startswith("#") and line.strip())
# The same file with the secret written out, as people do.
SPELLED = BARE.replace("${HEADWATER_SOURCE_PASSWORD}", json.dumps(SECRET))
PLACE = re.compile(r"f\.yaml:([1-9][0-9]*):([1-9][0-9]*): .")
# A bound against hanging, far above the milliseconds that it takes; the machine may be busy.
SECONDS = 20

many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
fewer = settings(many, max_examples=60)


def judge(data: bytes | str, *, lines: bool = True, misplaced: bool = False) -> Pipeline | None:
    """Load, and hold the outcome against everything that must be true of any file.

    Args:
        data: the file.
        lines: whether Python and YAML count its lines alike.
        misplaced: whether the secret may stand where no secret belongs (a host, say): then only errors must not show it.
    """
    started = time.monotonic()
    try:
        pipeline = loads(data, "f.yaml", ENV)
    except PipelineFileError as error:
        message = str(error)
        found = PLACE.match(message)
        assert found, message
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        if lines:
            # YAML also breaks lines at \x85, \u2028 and \u2029, as splitlines does (and at more).
            assert int(found[1]) <= len(text.splitlines()) + 1, message
        assert len(message) < 40_000
        assert SECRET not in message
        assert SECRET not in "".join(traceback.format_exception_only(error))
        assert error.__cause__ is None
        assert error.__suppress_context__
        return None
    finally:
        assert time.monotonic() - started < SECONDS
    for shown in (repr(pipeline), str(pipeline), pipeline.model_dump_json()):
        assert misplaced or SECRET not in shown
    for sink in pipeline.sinks:
        assert re.fullmatch("[0-9a-f]{16}", pipeline.spec_hash(sink))
    for path in (("source", "password"), ("sinks",), ("views", "x", "columns", 3), ()):
        assert PLACE.match(f"{pipeline.locate(path)}: x")
    return pipeline


def test_the_seed_files_are_pipelines() -> None:
    for text in (template(), FULL, BARE, SPELLED):
        assert judge(text) is not None


@many
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    judge(data)


@many
@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    judge(text, lines=False)


YAML_BITS = st.sampled_from(
    ["version: 1\n", "name: a\n", "source:\n", "  ", "\t", "- ", ": ", "\n", "{", "}", "[", "]", ",", "&a ", "*a", "<<: ", "!!str "]
    + ["!x", "|\n", ">-\n", "'", '"', "\\", "#", "%YAML 1.2\n", "---\n", "...\n", "? ", "${PORT}", "${", "${X:-", "$${", "}"]
    + ["null", "~", "true", "1", "-0", "1e999", "9" * 40, ".inf", ".nan", "0x1F", "2020-01-01", "\u2028", "\x85", "\ufeff", "😀"]
)  # fmt: skip


@many
@given(st.lists(YAML_BITS | st.text(max_size=5), max_size=60).map("".join))
def test_text_that_looks_like_yaml(text: str) -> None:
    judge(text, lines=False)


@many
@given(st.data())
def test_a_line_of_a_good_file_changed(data: st.DataObject) -> None:
    """Delete, duplicate, move, indent, or replace lines."""
    lines = BARE.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        what = data.draw(st.sampled_from(["delete", "duplicate", "swap", "indent", "dedent", "garbage"]))
        if what == "delete" and len(lines) > 2:
            del lines[at]
        elif what == "duplicate":
            lines.insert(at, lines[at])
        elif what == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif what == "indent":
            lines[at] = data.draw(st.sampled_from([" ", "  ", "\t"])) + lines[at]
        elif what == "dedent":
            lines[at] = lines[at].lstrip()
        else:
            lines[at] = data.draw(YAML_BITS | st.text(max_size=20)) + "\n"
    judge("".join(lines), lines=False)


@many
@given(
    st.lists(st.tuples(st.integers(0, len(BARE.encode()) - 1), st.binary(max_size=6), st.integers(0, 8)), max_size=4)
)
def test_bytes_of_a_good_file_changed(edits: list[tuple[int, bytes, int]]) -> None:
    raw = bytearray(BARE.encode())
    for at, new, drop in edits:
        raw[at : at + drop] = new
    judge(bytes(raw), lines=False)


@many
@given(
    st.integers(0, len(SPELLED) - 1),
    st.sampled_from(["", " ", "\n", "\t", ":", "'", '"', "[", "{", "*", "&", "!", "${", "#"]),
)
def test_a_character_typed_wrong_beside_a_password_in_the_file(at: int, new: str) -> None:
    judge(SPELLED[:at] + new + SPELLED[at + 1 :], lines=False)
    where = SPELLED.index(SECRET) - 2 + at % 4
    judge(SPELLED[:where] + new + SPELLED[where:], lines=False)


SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from([SECRET, "${PORT}", "${NO}"])
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def places_of(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path] * bool(path) + [place for key, item in items for place in places_of(item, (*path, key))]


TREE = YAML(typ="safe", pure=True).load(BARE)
PLACES = places_of(TREE)


def dumped(tree: Any) -> str:
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_unicode = True
    yaml.dump(tree, out)
    return out.getvalue()


@many
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["replace", "delete", "rename", "add", "move"]), TREES), min_size=1, max_size=3), st.data())  # fmt: skip
def test_a_node_of_a_good_file_changed(edits: list[tuple[tuple[Any, ...], str, Any]], data: st.DataObject) -> None:
    """The structure stays YAML; types, keys and places of values are wrong. JSON is YAML: every value keeps its form."""
    tree = json.loads(json.dumps(TREE))
    for path, what, new in edits:
        parent = tree
        for step in path[:-1]:
            if isinstance(parent, dict):
                parent = parent.get(step)
            else:
                parent = (
                    parent[step] if isinstance(parent, list) and isinstance(step, int) and step < len(parent) else None
                )
        if not isinstance(parent, dict) or path[-1] not in parent:
            continue
        if what == "delete":
            del parent[path[-1]]
        elif what == "rename":
            parent[data.draw(st.sampled_from([f"{path[-1]}x", str(path[-1])[:-1], "é", " ", "refs"]))] = parent.pop(
                path[-1]
            )
        elif what == "add":
            parent[data.draw(st.text(max_size=12))] = new
        elif what == "move":
            parent[path[-1]] = SECRET
        else:
            parent[path[-1]] = new
    judge(json.dumps(tree, ensure_ascii=data.draw(st.booleans())), lines=False, misplaced=True)


@fewer
@given(TREES)
def test_any_tree_under_every_part(tree: Any) -> None:
    card = {"root": "customers", "refs": tree, "children": tree, "aggregates": tree}
    judge(json.dumps({**TREE, "views": {"customer": card}}), lines=False, misplaced=True)
    for part in ("source", "kafka", "connect", "row_store", "views", "sinks", "policy", "engine"):
        judge(json.dumps({**TREE, part: tree}), lines=False, misplaced=True)


@fewer
@given(
    st.dictionaries(
        st.sampled_from(["HEADWATER_SOURCE_PASSWORD", "HEADWATER_POSTGRES_PORT", "HEADWATER_KAFKA"]),
        st.text(max_size=40),
    )
)
def test_any_value_of_a_variable_changes_no_structure(values: dict[str, str]) -> None:
    env = ENV | values
    try:
        pipeline = loads(BARE, "f.yaml", env)
    except PipelineFileError as error:
        assert PLACE.match(str(error))
        return
    # `${PASSWORD}` has no default: empty counts as left out, and then there is none.
    assert pipeline.source.password.get_secret_value() == env["HEADWATER_SOURCE_PASSWORD"]
    assert set(pipeline.sinks) == {"search", "cache", "warehouse"}


# -- joined views ------------------------------------------------------------------------------------------------------

COLUMNS = {"id": "int4", "customer_id": "int4", "order_id": "int8", "a": "text", "b": "text[]", "c": "numeric"}


def table(name: str, *key: str) -> Table:
    return Table(
        "public", name, tuple(Column(c, t, t[:-2] if "[" in t else t, array="[" in t) for c, t in COLUMNS.items()), key
    )


CATALOGUE = Catalogue(
    {t.qualified: t for t in (table("customers", "id"), table("orders", "customer_id", "order_id"), table("log"))}
)
TABLE_NAMES = st.sampled_from(["customers", "orders", "public.customers", "log", "ordres"])
COLUMN_NAMES = st.sampled_from([*COLUMNS, "odrer_id", "", SECRET])
PICKS = st.lists(COLUMN_NAMES | st.dictionaries(COLUMN_NAMES, COLUMN_NAMES, min_size=1, max_size=1), max_size=3)
SQL_BITS = st.sampled_from(
    ["count", "sum", "(", ")", "*", "distinct ", "a", "ID", "`", "'", '"', " desc", " nulls first", ",", " -- ", "/*", "->", "::", "."]
    + ["cast(", " as ", "<", ">", "[", "]", "1.5", "case ", "x'", "$$", "é", "\\", "\n", "interval ", " and "]
)  # fmt: skip
SQL = st.lists(SQL_BITS | st.text(max_size=3), max_size=12).map("".join)
VALUES = st.sampled_from(["count(*)", "sum(id)", "count(distinct a)", "max(b)", "min(upper(a))", "avg(c)"]) | SQL
KEYS = st.fixed_dictionaries({"id": st.sampled_from(["customer_id", "id"])}) | st.dictionaries(
    COLUMN_NAMES, COLUMN_NAMES, max_size=3
)
EDGE = {"table": TABLE_NAMES, "on": KEYS}
NAMES = st.sampled_from(["one", "two", "a", "_id", "Upper", "no-name"])
AGGREGATES = st.dictionaries(
    NAMES, st.fixed_dictionaries({**EDGE, "value": VALUES}, optional={"where": SQL}), max_size=2
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    more = {"columns": PICKS, "refs": inner, "children": inner, "aggregates": AGGREGATES}
    more |= {"value": COLUMN_NAMES, "hide": st.booleans()}
    child = {
        **more,
        "one": st.booleans(),
        "order_by": st.sampled_from(["a desc", "id, a nulls last", "b"]) | SQL,
        "limit": st.integers(-1, 10_001),
    }
    return st.dictionaries(
        NAMES, st.fixed_dictionaries(EDGE, optional=more) | st.fixed_dictionaries(EDGE, optional=child), max_size=2
    )


JOINS = st.recursive(st.just({}), nested, max_leaves=6)


@many
@given(
    st.fixed_dictionaries(
        {"root": TABLE_NAMES}, optional={"columns": PICKS, "refs": JOINS, "children": JOINS, "aggregates": AGGREGATES}
    )
)
def test_any_joined_view_is_a_tree_or_an_error_with_its_place(view: dict[str, Any]) -> None:
    tree = {**TREE, "views": {"customer": view}, "sinks": {"cache": TREE["sinks"]["cache"]}}
    tree["source"] = {**TREE["source"], "tables": ["public.*"]}
    text = json.dumps(tree, ensure_ascii=False)
    if (pipeline := judge(text, misplaced=True)) is None:
        return
    try:
        (found,) = resolve_views(pipeline, CATALOGUE, "cache")
    except ConfigError as error:
        for part in parts_of(error):
            assert PLACE.match(str(part)), error
            assert part.fix, error
        return
    assert isinstance(found, JoinedView) == bool(pipeline.views["customer"].joins)
    assert set(view_tables(found)) <= set(CATALOGUE.tables)
    if isinstance(found, JoinedView):
        for _, node in found.tree.walk():
            held = [a.on for a in node.aggregates] + [child.on for child in node.children]
            assert all(tuple(left for left, _ in on) == node.table.primary_key for on in held)
            assert all(tuple(right for _, right in ref.on) == ref.table.primary_key for ref in node.refs)


def test_the_joined_view_of_the_template_is_resolved() -> None:
    """So that the strategies above are known to reach trees at all."""
    joins = {"children": {"one": {"table": "orders", "on": {"id": "customer_id"}, "order_by": "a desc"}}}
    tree = {**TREE, "views": {"customer": {"root": "customers", **joins}}, "sinks": {"cache": TREE["sinks"]["cache"]}}
    pipeline = judge(json.dumps({**tree, "source": {**TREE["source"], "tables": ["public.*"]}}))
    assert pipeline is not None
    assert isinstance(resolve_views(pipeline, CATALOGUE, "cache")[0], JoinedView)


@many
@given(SQL)
def test_any_text_of_sql_is_taken_apart(text: str) -> None:
    found = tokens(text)
    assert [token.start for token in found] == sorted(token.start for token in found)
    assert all(token.start < token.end <= len(text) for token in found)
    assert over_struct(text, (), "t0").count("`t0`") == text.count("`t0`") + over_struct(text, (), "t0").count("`t0`.*")
    assert mentions(text, COLUMNS) <= set(COLUMNS)
    for name in COLUMNS:
        assert over_struct(text, [name], "t0") == text or name in mentions(text, [name])
    for parse in (parse_order, parse_aggregate):
        try:
            parse(text)
        except TextError as error:
            assert error.what


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{" * 100_000, "- " * 100_000, "? " * 50_000, "a: " * 100_000, "&a " * 50_000, "'" * 300_000, "#" * 900_000]
    + ["\n" * 900_000, "a:\n" * 100_000, "x" * 900_000, "[a,]" * 50_000, "- |\n" * 50_000, "${" * 300_000, "k: ${A:-" + "b" * 500_000]
    + ["".join(f"{' ' * n}a:\n" for n in range(1_000)), "a: " + "[*a" * 1_000, '"' + "\\\n" * 200_000, "!" * 300_000, "%" * 300_000]
    + ["views: {v: {refs: &a {b: {refs: *a}}}}", "views: {v: &a {<<: *a}}", "views: {v: {root: r, refs: " + "{a: {refs: " * 15, "v: &a\n" * 9]
    + ["p: ${PORT:-" * 30_000, "x: &a [1]\n" + "".join(f"y{n}: *a\n" for n in range(30_000)), "<<: [" + "{}," * 100_000],
    ids=lambda text: f"{text[:6]!r}x{len(text)}",
)  # fmt: skip
def test_large_odd_files_cost_a_bounded_time(text: str) -> None:
    judge(text, lines=False)
