"""What a recapture that was begun is gone on with, and what is said of a sink that differs. No server is asked."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.errors import ConfigError, SlotLost, SourceChanged, SourceError, StateError
from cdc.pipeline import Pipeline, loads
from connectors.database.history import Moment
from connectors.database.publication import SENT, Publication
from console.cli.main import cli
from operations import recapture as place
from operations.erase.note import Note
from operations.recapture import begun, recapture
from operations.state.folder import captured_path, pipeline_folder, register_of
from operations.state.history import history_folder
from spark.disk.made_of import define
from tests.support.recapturing import World, recaptured


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return recaptured(tmp_path, monkeypatch)


ALL = ["drop", "apply", "snapshot", "build cache", "build other"]
CAPTURED = {"system_identifier": "7", "timeline": 1, "dropped": True, "captured": True}


def test_this_folder_has_captured_the_pipeline_then(world: World) -> None:
    recapture(world.pipeline, world.file, lambda _line: None)
    assert world.done == ALL and captured_path(world.pipeline).exists()


def test_one_that_was_killed_goes_on_where_it_was(world: World) -> None:
    world.note(**CAPTURED, sinks={"cache": True})
    assert begun(world.pipeline) is not None
    report = recapture(world.pipeline, world.file, world.done.append)
    assert world.done == ["build other"] and report["equal"] and not captured_path(world.pipeline).exists()
    assert begun(world.pipeline) is None


@pytest.mark.parametrize("now", [Moment("8", 1, False, 9), Moment("7", 2, False, 100)])
def test_what_was_begun_in_another_database_is_begun_anew(world: World, now: Moment) -> None:
    """One that was killed and ended by hand left its note; after the next upgrade nothing was asked, removed, captured
    or built, and the new database had no slot."""
    world.note(**CAPTURED, sinks={"cache": True, "other": True})
    world.now = now
    assert begun(world.pipeline) is None  # so it is asked
    assert recapture(world.pipeline, world.file, lambda _line: None)["equal"] and world.done == ALL


def test_a_second_one_is_refused_while_the_first_is_at_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun while the first removed the old capture, it would have removed what the first had made by then."""

    def drop(*_: Any, **__: Any) -> None:
        world.done.append("drop")
        if world.done != ["drop"]:
            return
        with pytest.raises(StateError, match="another recapture of pipeline shop is at work"):
            recapture(world.pipeline, world.file, lambda _line: None)

    monkeypatch.setattr(place, "drop", drop)
    assert recapture(world.pipeline, world.file, lambda _line: None)["equal"] and world.done == ALL


def test_nothing_is_removed_under_an_erasure_and_what_a_killed_one_has_left_of_topics_is_forgotten(
    world: World,
) -> None:
    """Slot, topics and connector were gone before it was refused, "with nothing changed"."""
    note = Note(world.pipeline)
    with note.alone(), pytest.raises(StateError, match=r"an erasure of pipeline shop is at work(.|\n)*nothing was"):
        recapture(world.pipeline, world.file, lambda _line: None)
    assert world.done == [] and begun(world.pipeline) is None
    note.begin("topics", "shop.public.t", {"min.compaction.lag.ms": "1"})
    assert recapture(world.pipeline, world.file, lambda _line: None)["equal"] and note.read() == {}


def test_it_is_noted_in_which_database_it_was_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, "apply", killed)
    with pytest.raises(KeyboardInterrupt):
        recapture(world.pipeline, world.file, lambda _line: None)
    left = begun(world.pipeline)
    assert left is not None and (left.system_identifier, left.timeline, left.dropped) == ("7", 1, True)
    world.now = Moment("8", 1, False, 9)
    assert begun(world.pipeline) is None


def test_a_note_from_before_it_said_of_which_database_begins_anew(world: World) -> None:
    world.note(dropped=True, captured=True, sinks={"cache": True, "other": True})
    assert begun(world.pipeline) is None


@pytest.mark.parametrize("gap", [SourceChanged("an older copy"), SlotLost("gone"), None])
def test_an_older_copy_of_the_same_database_is_another_one(world: World, gap: Exception | None) -> None:
    """Copied as files it has the same identifier and the same timeline; what `run` has noted since tells it."""
    world.note(**CAPTURED, sinks={"cache": True, "other": True})
    world.gap = gap
    assert begun(world.pipeline) is not None  # `run` was never here, so nobody has noted anything
    world.seen()
    assert (begun(world.pipeline) is None) is (gap is not None)


def test_a_promoted_standby_that_was_followed_is_the_same_one(world: World) -> None:
    world.note(**CAPTURED)
    world.now = Moment("7", 2, False, 100)
    assert begun(world.pipeline) is None
    world.seen(timeline=2, followed=(1,))
    assert begun(world.pipeline) is not None


def test_a_sink_that_differs_is_told_with_the_way_out(world: World) -> None:
    """The same command was advised, which only compares it again: with a dead letter, for ever."""
    world.differing = {"other"}
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--yes"])
    assert told.exit_code == 2, told.output
    [line] = [one for one in told.stdout.splitlines() if one.startswith("sink other: ")]
    assert line.startswith("sink other: readers see generation 1; what was built differs from Postgres: ")
    commands = ("run {}`", "letters {} list --sink other --generation 2`", "promote {} other`")
    for command in (*commands, "verify {} --sink other --generation 2 --repair`"):
        assert f"`headwater {command.format(world.file)}" in line
    assert world.done == ALL
    again = CliRunner().invoke(cli, ["recapture", str(world.file), "--json"])  # asks nothing: it goes on
    assert again.exit_code == 2 and json.loads(again.stdout)["sinks"] == [
        {"sink": "cache", "generation": 1, "equal": True, "differs": None},
        {"sink": "other", "generation": 1, "equal": False, "differs": 2},
    ]
    assert world.done == [*ALL, "build other"]


def test_a_sink_that_was_taken_out_of_the_file_keeps_nobody_from_the_end(world: World) -> None:
    world.differing = {"other"}
    recapture(world.pipeline, world.file, lambda _line: None)
    world.file.write_text("\n".join(line for line in world.file.read_text().split("\n") if "  other:" not in line))
    report = recapture(world.pipeline, world.file, lambda _line: None)
    assert report["equal"] and [one["sink"] for one in report["sinks"]] == ["cache"] and begun(world.pipeline) is None


def test_what_may_not_be_dropped_is_refused_before_anything_is_changed(world: World) -> None:
    """A file that named another database of the cluster had a generation removed before it was refused, and left a
    note: the next one, of the right file, asked no question and dropped a healthy pipeline's slot and topics."""
    register = register_of(world.pipeline, "cache")
    register.move(register.create("asked for", own=True).number, "ready")
    entries = register.entries()
    world.refused = SourceChanged("pipeline shop captures database shop already")
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--yes"])
    assert told.exception is world.refused, told.output
    assert (register.entries(), world.done, begun(world.pipeline)) == (entries, [], None)


def test_a_publication_of_another_role_is_refused_before_anything_is_changed(world: World) -> None:
    """`drop` leaves it, and `apply` refused it when slot, topics and connector were gone."""
    tables = frozenset({"public.orders", "headwater.heartbeat_shop"})
    other = Publication(tables, SENT, True, False, frozenset(), owner="dba", owned=False, role="own")
    world.publication = other
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--yes"])
    assert isinstance(told.exception, SourceError) and not told.exception.transient
    assert "publication headwater_shop belongs to dba" in str(told.exception)
    assert "ALTER PUBLICATION headwater_shop OWNER TO own" in told.exception.fix
    assert (world.done, begun(world.pipeline)) == ([], None)
    world.publication = replace(other, all_tables=True, whole_database=True)
    assert recapture(world.pipeline, world.file, lambda _line: None)["equal"] and world.done == ALL


def test_tables_that_apply_will_refuse_are_refused_before_anything_is_changed(world: World) -> None:
    """While they are captured `apply` only warns of some; it refused them when all was removed."""
    world.unfit = SourceError("public.orders has the timetz at in its key")
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--yes"])
    assert told.exception is world.unfit, told.output
    assert (world.done, begun(world.pipeline)) == ([], None)


LAKE = """\
  lake: {type: iceberg, views: [order], namespace: before, history: true, catalog_uri: /x/c.db, warehouse: /x}
engine:"""


def test_a_history_that_would_end_is_told_and_refused_before_anything_is_changed(world: World) -> None:
    """`run` refused it afterwards, and the other namespace that it asked for had the sink filled a second time."""
    world.file.write_text(world.file.read_text().replace("engine:", LAKE))
    folder = history_folder(world.pipeline, "lake")
    folder.mkdir(parents=True)
    (folder / "identity.json").write_text(json.dumps({"system_identifier": "6", "namespace": "before"}))
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--yes"])
    assert "the history of sink lake ends here" in told.output
    assert isinstance(told.exception, StateError) and "another `namespace`" in told.exception.fix
    assert (world.done, begun(world.pipeline)) == ([], None)
    world.file.write_text(world.file.read_text().replace("namespace: before", "namespace: after"))
    assert recapture(world.pipeline, world.file, lambda _line: None)["equal"] and world.done == ALL
    world.done.clear()
    former = folder / "former" / "after"
    former.mkdir(parents=True)
    (former / "identity.json").write_text("{}")
    with pytest.raises(StateError, match="history of sink lake can't go on"):
        recapture(world.pipeline, world.file, lambda _line: None)


JOINS = "{root: orders, children: {others: {table: orders, on: {id: id}}}}}\nrow_store: {url: redis://h}"


@pytest.mark.parametrize("dropped", [False, True])
def test_a_row_store_that_the_file_has_no_more_is_missed_before_anything_is_changed(
    world: World, dropped: bool
) -> None:
    """Slot and topics were gone and all was built, when the generation of before could not be removed: each time."""
    text = world.file.read_text()
    joined = loads(text.replace("{root: orders}}", JOINS), "shop.yaml")
    define(register_of(joined, "other").generation(), joined, [])
    if dropped:
        world.note(system_identifier="7", timeline=1, dropped=True)
    noted = begun(world.pipeline)
    with pytest.raises(ConfigError, match="generation 1 joins tables") as refused:
        recapture(world.pipeline, world.file, lambda _line: None)
    assert "leave row_store in the file" in (refused.value.fix or "")
    assert (world.done, begun(world.pipeline)) == ([], noted)
    world.file.write_text(text.replace("engine:", "row_store: {url: redis://h}\nengine:"))
    assert recapture(world.pipeline, world.file, lambda _line: None)["equal"]


def test_it_asks_as_long_as_the_old_capture_is_there(world: World) -> None:
    world.note(system_identifier="7", timeline=1)
    told = CliRunner().invoke(cli, ["recapture", str(world.file)])
    assert told.exit_code == 1 and "every table is read again" in told.output and world.done == []
    assert f"(database {world.pipeline.source.database}) has the system identifier 7" in told.output
    world.note(system_identifier="7", timeline=1, dropped=True)
    told = CliRunner().invoke(cli, ["recapture", str(world.file)])
    assert told.exit_code == 0 and "going on with what was begun" in told.output and world.done == ALL[1:]


@pytest.mark.parametrize(("words", "stays"), [((), False), (("--keep-sinks",), False), (("--dry-run",), True)])
def test_what_was_begun_with_a_pipeline_that_is_dropped_does_not_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], stays: bool
) -> None:
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [])
    monkeypatch.setattr("connectors.drop.drop", lambda *_, **__: [])
    monkeypatch.setattr("operations.generations.targets.drop_sink_state", lambda *_: None)
    monkeypatch.setattr("cdc.log.forgotten.forget_sinks", lambda *_: None)  # Kafka is nowhere, and would be waited for
    monkeypatch.setattr("operations.freshness.note.forget_source_note", lambda _: None)
    world.note(**CAPTURED)
    told = CliRunner().invoke(cli, ["drop", str(world.file), "--topics", "--yes", *words])
    assert told.exit_code == 0, told.output
    assert (begun(world.pipeline) is not None) is stays


def test_what_was_begun_goes_on_after_a_drop_that_was_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was forgotten before, and the next recapture dropped and captured once more."""

    def refuse(*_: Any) -> None:
        raise ConfigError("generation 1 joins tables")

    for name, other in (("plan_drop", lambda *_, **__: []), ("open_servers", nullcontext), ("changing", nullcontext)):
        monkeypatch.setattr(f"connectors.drop.{name}", other)
    monkeypatch.setattr("operations.generations.targets.drop_sink_state", refuse)
    world.note(**CAPTURED)
    told = CliRunner().invoke(cli, ["drop", str(world.file), "--topics", "--yes"])
    assert isinstance(told.exception, ConfigError) and begun(world.pipeline) is not None


OF_TABLES = ("shapes.json", "catalogue.json", "owed.json", "asked.json", "allowed.json", "cache/evolution.json")


def known_of_tables(pipeline: Pipeline) -> list[str]:
    """Which of the files are there that say what is known of the tables."""
    return [name for name in OF_TABLES if (pipeline_folder(pipeline) / name).exists()]


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (("drop", "--topics"), False),
        (("drop", "--topics", "--keep-sinks"), False),
        (("recapture",), False),
        (("drop",), True),  # topics that stay are read by it
        (("drop", "--topics", "--sink", "cache"), True),
    ],
)
def test_what_is_known_of_tables_goes_with_their_topics(
    world: World, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], stays: bool
) -> None:
    """The next pipeline of that name was judged by the positions of a history that was left."""
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [])
    monkeypatch.setattr("connectors.drop.drop", lambda *_, **__: [])
    monkeypatch.setattr("operations.generations.targets.drop_sink_state", lambda *_: None)
    monkeypatch.setattr("cdc.log.forgotten.forget_sinks", lambda *_: None)  # Kafka is nowhere, and would be waited for
    for name in OF_TABLES:
        (pipeline_folder(world.pipeline) / name).write_text("{}")
    told = CliRunner().invoke(cli, [words[0], str(world.file), "--yes", *words[1:]])
    assert told.exit_code == 0, told.output
    assert known_of_tables(world.pipeline) == (list(OF_TABLES) if stays else [])
