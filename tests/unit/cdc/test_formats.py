"""What a newer Headwater has left is refused by name; what an older one has left, without a number, is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc import formats
from cdc.errors import NewerFormat, StateError
from cdc.formats import as_comment, from_comment, refuse_newer
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline, load
from cdc.pipeline.definition import defined_as, definition_of
from console.cli.main import cli
from operations.state.folder import NUMBER, numbered_state_dir, register_of, state_dir

FILE = """
version: 1
name: shop
source: {host: localhost, database: shop, user: hw, password: x, tables: [public.orders]}
kafka: {bootstrap: "localhost:1"}
connect: {url: "http://localhost:1"}
views: {order: {root: orders}}
sinks: {cache: {type: redis, url: "redis://localhost:1/0", view: order}}
engine: {state_dir: STATE}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.replace("STATE", str(tmp_path / "state")))
    return path


@pytest.fixture
def pipeline(file: Path) -> Pipeline:
    return load(file, {})


def number(pipeline: Pipeline, text: str) -> Path:
    path = Path(pipeline.engine.state_dir) / pipeline.name / NUMBER
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(("found", "known", "is_read"), [(None, 3, 1), (1, 3, 1), (3, 3, 3)])
def test_what_is_known_is_read(found: Any, known: int, is_read: int) -> None:
    assert refuse_newer("it", found, known) == is_read


@pytest.mark.parametrize("found", [4, 0, -1, "1", 1.5, [], {}])
def test_anything_else_is_refused(found: Any) -> None:
    with pytest.raises(NewerFormat, match=r"it was written by a newer Headwater \(format .*this one knows 3"):
        refuse_newer("it", found, 3)


def test_a_comment_carries_a_number() -> None:
    assert from_comment(as_comment(7, "what it is")) == 7
    assert from_comment("somebody's own words") is None and from_comment(None) is None


def test_a_state_folder_gets_its_number_once(pipeline: Pipeline) -> None:
    assert state_dir(pipeline) == Path(pipeline.engine.state_dir)  # nothing is there, nothing is wrong
    numbered_state_dir(pipeline)
    path = Path(pipeline.engine.state_dir) / "shop" / NUMBER
    assert json.loads(path.read_text()) == {"format": formats.STATE}
    before = path.stat().st_mtime_ns
    numbered_state_dir(pipeline)
    assert path.stat().st_mtime_ns == before
    assert register_of(pipeline, "cache").living() == 1


def test_a_newer_state_folder_is_refused_and_left_alone(pipeline: Pipeline) -> None:
    path = number(pipeline, '{"format": 99}')
    for look in (state_dir, numbered_state_dir, lambda one: register_of(one, "cache")):
        with pytest.raises(NewerFormat, match=r"the state of pipeline shop in .*newer Headwater"):
            look(pipeline)
    assert path.read_text() == '{"format": 99}'


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_a_number_that_can_not_be_read_is_no_licence(pipeline: Pipeline, text: str) -> None:
    number(pipeline, text)
    with pytest.raises(StateError, match=r"format\.json can't be read"):
        state_dir(pipeline)


@pytest.mark.parametrize(
    "words",
    [
        ["status", "FILE"],
        ["status", "FILE", "--alive"],
        ["generations", "FILE"],
        ["promote", "FILE", "cache"],
        ["rollback", "FILE", "cache"],
        ["retire", "FILE", "cache", "--yes"],
        ["run", "FILE"],
        ["rebuild", "FILE", "cache"],
        ["verify", "FILE"],
        ["explain", "FILE", "cache", "1"],
        ["drop", "FILE", "--yes"],
    ],
    ids=" ".join,
)
def test_every_verb_that_looks_at_it_refuses_it_first(pipeline: Pipeline, file: Path, words: list[str]) -> None:
    """No server answers here: a verb that asked one first would fail otherwise."""
    path = number(pipeline, '{"format": 99}')
    with pytest.raises(NewerFormat):
        cli.main([str(file) if word == "FILE" else word for word in words], standalone_mode=False)
    assert [found.name for found in path.parent.iterdir()] == [NUMBER]


def test_a_newer_definition_is_refused(pipeline: Pipeline) -> None:
    definition = definition_of(pipeline, "cache", ())
    assert defined_as(pipeline, "cache", definition).sinks == pipeline.sinks
    with pytest.raises(NewerFormat, match="the definition of sink cache"):
        defined_as(
            pipeline, "cache", {**definition, "format": formats.DEFINITION + 1, "views": "others", "sink": "others"}
        )


def test_a_dead_letter_has_a_number_and_one_of_before_is_read() -> None:
    letter = DeadLetter("cache", "order", "1", 5, "no")
    record = orjson.loads(letter.to_json())
    assert record["format"] == formats.LETTER
    assert DeadLetter.from_json(orjson.dumps({k: v for k, v in record.items() if k != "format"})) == letter
    with pytest.raises(NewerFormat, match="a dead letter"):
        DeadLetter.from_json(orjson.dumps(record | {"format": 2}))
