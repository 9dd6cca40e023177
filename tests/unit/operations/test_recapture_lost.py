"""A recapture of a log that is the only copy of something: told, refused, and done when it is forced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cdc.errors import StateError
from console.cli.main import cli
from operations.recapture import begun, recapture
from tests.support.recapturing import World, recaptured

LOST = {"shop-events": "events", "shop-events.order": "events", "shop.public.orders": "versions"}
SAID = (
    "topic shop-events.order is deleted: events go for good, but for those whose rows are still in the outbox",
    "topic shop.public.orders is deleted: what its rows were before (`as_of`) goes for good",
    "Without --force it is refused",
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = recaptured(tmp_path, monkeypatch)
    made.lost = dict(LOST)
    return made


def test_what_would_be_lost_is_told_and_refused_before_anything_is_changed(world: World) -> None:
    """Events whose rows were deleted were gone, and versions of rows; sinks that lacked them were found equal."""
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--yes"])
    assert all(line in told.output for line in SAID), told.output
    assert isinstance(told.exception, StateError) and "--force" in told.exception.fix
    assert all(topic in told.exception.what for topic in LOST)
    assert (world.done, begun(world.pipeline)) == ([], None)


def test_forced_it_is_asked_about_and_done_and_the_report_names_what_went(world: World) -> None:
    asked = CliRunner().invoke(cli, ["recapture", str(world.file), "--force"])
    assert asked.exit_code == 1 and all(line in asked.output for line in SAID) and world.done == []
    told = CliRunner().invoke(cli, ["recapture", str(world.file), "--force", "--yes", "--json"])
    assert told.exit_code == 0 and world.done[0] == "drop", told.output
    assert json.loads(told.stdout)["lost"] == [{"topic": name, "holds": holds} for name, holds in LOST.items()]


def test_what_a_killed_one_had_deleted_is_in_the_report_of_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some topics are gone then, and the helper schema is not: nothing says any more that they were there."""

    def killed(*_: object, **__: object) -> None:
        del world.lost["shop-events"]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("operations.recapture.drop", killed)
        with pytest.raises(KeyboardInterrupt):
            recapture(world.pipeline, world.file, lambda _line: None, force=True)
    with pytest.raises(StateError, match="only copy"):
        recapture(world.pipeline, world.file, lambda _line: None)
    report = recapture(world.pipeline, world.file, lambda _line: None, force=True)
    assert [one["topic"] for one in report["lost"]] == list(LOST)


def test_what_is_lost_is_asked_of_the_old_capture_only(world: World) -> None:
    """Once that is gone, the topics of these names are the new ones."""
    world.note(system_identifier="7", timeline=1, dropped=True, lost={"shop-events": "events"})
    report = recapture(world.pipeline, world.file, lambda _line: None)
    assert report["equal"] and report["lost"] == [{"topic": "shop-events", "holds": "events"}]
