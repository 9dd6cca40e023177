"""Edits of a sink that change nothing of what it holds: no generation is built of them. No server is asked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import definition_of
from cdc.pipeline.reference import markdown
from operations.state.folder import register_of
from spark.disk.made_of import add_table, define, keep_definition, outdated, proposed

FILE = """\
version: 1
name: p
source: {{host: h, port: 1, database: d, user: u, password: x, tables: [{captured}]}}
kafka: {{bootstrap: "h:1"}}
connect: {{url: "http://h:1"}}
views: {{v: {{root: public.t}}, w: {{root: public.w}}}}
sinks: {{cache: {{type: redis, url: "redis://h:1", {keeps}}}}}
engine: {{state_dir: {folder}}}
"""
BOTH = "public.t, public.w"


def load(folder: Path, keeps: str, captured: str = BOTH) -> Pipeline:
    return loads(FILE.format(folder=folder, keeps=keeps, captured=captured), "p.yaml")


def differs(folder: Path, kept: str, now: str, captured: str = BOTH) -> list[str]:
    """In what a file differs from a generation that was made of another one."""
    first = load(folder, kept)
    generation = register_of(first, "cache").generation()
    define(generation, first, ["public.t", "public.w"])
    return outdated(load(folder, now, captured), generation)


@pytest.mark.parametrize(
    ("kept", "now"),
    [
        ("views: [v, w]", "views: [w, v]"),
        ("view: v", "views: [v]"),
        ("views: [v]", "view: v"),
        ("tables: [t, w]", "tables: [w, t]"),
        ("tables: [t, w]", "tables: [public.w, public.t]"),
        ("tables: [public.t, public.w]", "tables: [t, w]"),
        ("tables: all", "tables: [t, w]"),
        ("tables: all", "tables: [public.w, public.t]"),
        ("tables: [t, w]", "tables: all"),
    ],
)
def test_another_way_to_say_the_same_is_no_change(tmp_path: Path, kept: str, now: str) -> None:
    """It cost a whole rebuild, and the generation that `rollback` would have gone back to."""
    assert differs(tmp_path, kept, now) == []


@pytest.mark.parametrize(
    ("kept", "now", "why"),
    [
        ("views: [v, w]", "view: v", ["views.w removed", "sink.views changed"]),
        ("view: v", "views: [v, w]", ["views.w added", "sink.views changed"]),
        ("tables: all", "tables: [t]", ["sink.tables changed"]),
        ("tables: [t]", "tables: [w]", ["sink.tables changed"]),
    ],
)
def test_other_views_and_tables_are_a_change(tmp_path: Path, kept: str, now: str, why: list[str]) -> None:
    assert differs(tmp_path, kept, now) == why


@pytest.mark.parametrize("captured", ["public.*", "public.*, other.u", "public.t, public.w, other.u"])
def test_a_short_name_is_read_by_what_is_captured(tmp_path: Path, captured: str) -> None:
    assert differs(tmp_path, "tables: all", "tables: [t, w]", captured) == []


@pytest.mark.parametrize("captured", ["public.t, public.w, other.t, other.w", "public.*, other.*"])
def test_a_name_that_two_schemas_may_have_is_taken_for_neither(tmp_path: Path, captured: str) -> None:
    assert differs(tmp_path, "tables: [t, w]", "tables: [public.t, public.w]", captured) == ["sink.tables changed"]


def test_a_short_name_that_was_kept_is_what_it_was_then(tmp_path: Path) -> None:
    """The rows of two tables came into one cache: another schema's `t` is captured by now, and nothing was built."""
    first = load(tmp_path, "tables: [t]")
    generation = register_of(first, "cache").generation()
    shaped = {**proposed(generation, first, ["public.t"]), "shapes": {"public.t": 7, "public.w": 8}}
    keep_definition(generation, shaped)
    for now, captured, why in [
        ("tables: [other.t]", "public.w, other.t", ["sink.tables changed"]),
        ("tables: [other.t]", "other.*, public.w", ["sink.tables changed"]),
        ("tables: [other.t]", f"{BOTH}, other.t", ["sink.tables changed"]),
        ("tables: [public.t]", f"{BOTH}, other.t", []),
        ("tables: [t]", BOTH, []),
    ]:
        text = FILE.replace("root: public.t", "root: public.w").format(folder=tmp_path, keeps=now, captured=captured)
        assert outdated(loads(text, "p.yaml"), generation) == why, (now, captured)


def test_what_a_sink_of_all_tables_took_up_later_may_be_named(tmp_path: Path) -> None:
    """It stands behind the others in what is kept."""
    captured = f"public.a, {BOTH}"
    first = load(tmp_path, "tables: all")
    generation = register_of(first, "cache").generation()
    define(generation, first, ["public.t", "public.w"])
    add_table(generation, "public.a")
    assert outdated(load(tmp_path, "tables: [a, t, w]", captured), generation) == []


def test_a_definition_stays_as_it_was_kept(tmp_path: Path) -> None:
    """An older Headwater that is put back reads it."""
    first = load(tmp_path, "views: [w, v]")
    generation = register_of(first, "cache").generation()
    define(generation, first, [])
    path = generation.folder / "definition.json"
    before = path.read_text()
    assert outdated(load(tmp_path, "views: [v, w]"), generation) == []
    assert path.read_text() == before
    kept = json.loads(before)["sink"]
    assert (kept["view"], kept["views"], kept["tables"]) == (None, ["w", "v"], None)


def test_an_index_is_marked_as_what_asks_for_a_rebuild_and_is_kept_as_ever(tmp_path: Path) -> None:
    """The values are those of the version before: else every such sink would be outdated after the upgrade."""
    assert markdown().count("| `index` ↻ |") == 2
    text = FILE.format(folder="s", keeps="view: v", captured=BOTH)
    pipeline = loads(text.replace('redis, url: "redis:', 'elasticsearch, index: shown, url: "http:'), "p.yaml")
    assert pipeline.spec_hash("cache") == "3f8ebb72fd0cdcde"
    definition = json.dumps(definition_of(pipeline, "cache", ()))
    assert hashlib.sha256(definition.encode()).hexdigest()[:16] == "cbd46bc39d7a4e50"
