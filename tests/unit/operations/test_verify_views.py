"""`verify --view`: one view in each sink that has it, and nobody takes that for the whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc.errors import ConfigError, UnknownName
from cdc.pipeline import Pipeline, loads
from cdc.view import View
from console.cli.verify import command
from operations.opened import Opened
from operations.state.pausing import pause
from operations.state.verified import last_verified, verified_generations
from operations.verify.comparison import Comparison
from operations.verify.report import verified
from operations.verify.tables_now import TablesNow
from operations.verify.verifier import Asked, Verifier
from tests.unit.operations.test_refusals import BROKEN, TEXT, WHOLE, make


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Sinks that are filled: `search` has order, `cache` customer, `both` has both. No server is asked."""
    found = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    for sink in found.sinks:
        make(found, sink, 1, "living")

    def compared(_self: Verifier, view: View, holders: Sequence[Opened], _folder: Path) -> dict[str, Comparison]:
        return {build.sink: Comparison(view.name) for build in holders}

    monkeypatch.setattr(Verifier, "_view", compared)
    monkeypatch.setattr(TablesNow, "refuse_altered", lambda *_: None)
    monkeypatch.setattr("operations.state.catalogue.source_catalogue", lambda _: WHOLE)
    monkeypatch.setattr("cdc.pipeline.load", lambda _: found)
    return found


def told(report: dict[str, Any]) -> dict[str, list[str]]:
    return {sink["sink"]: [view["view"] for view in sink["views"]] for sink in report["sinks"]}


@pytest.mark.parametrize(
    ("only", "views", "compared"),
    [
        ((), (), {"search": ["order"], "cache": ["customer"], "both": ["order", "customer"]}),
        ((), ("order",), {"search": ["order"], "both": ["order"]}),
        ((), ("customer", "order"), {"search": ["order"], "cache": ["customer"], "both": ["order", "customer"]}),
        (("both",), ("customer", "customer"), {"both": ["customer"]}),
    ],
)
def test_views_that_are_named_are_compared_alone(
    pipeline: Pipeline, only: tuple[str, ...], views: tuple[str, ...], compared: dict[str, list[str]]
) -> None:
    report = verified(pipeline, Asked(only, views=views))
    assert told(report) == compared and report["equal"] and report["views"] == (list(dict.fromkeys(views)) or None)


@pytest.mark.parametrize(
    ("only", "name", "fix"),
    [
        ((), "ordre", "did you mean order?"),
        ((), "xyz", "choose from order, customer"),
        (("cache",), "order", "choose from customer"),
    ],
)
def test_a_name_that_no_chosen_sink_has_is_refused(
    pipeline: Pipeline, only: tuple[str, ...], name: str, fix: str
) -> None:
    with pytest.raises(UnknownName, match=f"no sink that is compared has a view {name}") as error:
        verified(pipeline, Asked(only, views=("customer", name)))
    assert error.value.fix == fix


def test_what_was_compared_in_part_is_not_noted_of_the_whole(pipeline: Pipeline) -> None:
    """`generations` calls one proved by its note, and the page a sink equal."""
    verified(pipeline, Asked(views=("order",)))
    assert last_verified(pipeline)["sinks"] == [] and verified_generations(pipeline, "both")(1) is None
    verified(pipeline, Asked())
    whole = last_verified(pipeline)
    verified(pipeline, Asked(views=("order",)))
    assert last_verified(pipeline) == whole and len(whole["sinks"]) == 3


def invoked(tmp_path: Path, *options: str) -> Result:
    (tmp_path / "f").touch()
    return CliRunner().invoke(command, [str(tmp_path / "f"), *options])


def test_the_verb_says_that_no_other_was_compared(pipeline: Pipeline, tmp_path: Path) -> None:
    assert invoked(tmp_path).stdout.splitlines()[-1] == "all sinks equal Postgres"
    found = invoked(tmp_path, "--view", "order")
    assert found.exit_code == 0 and "customer" not in found.output
    assert found.stdout.splitlines()[-2:] == [
        "no other view was compared than order",
        "what was compared equals Postgres",
    ]
    assert json.loads(invoked(tmp_path, "--view", "order", "--json").stdout)["views"] == ["order"]
    pause(pipeline, "both", None, lambda _: None)
    last = invoked(tmp_path, "--view", "order").stdout.splitlines()[-1]
    assert last == "what was compared equals Postgres; paused: both"


def test_an_audit_is_of_all_views(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headwater_verify_last_success_timestamp_seconds` says that all was compared."""
    monkeypatch.setattr("operations.verify.audit.audit", lambda *_: pytest.fail("it began"))
    found = invoked(tmp_path, "--view", "order", "--every", "5")
    assert found.exit_code == 2 and "--every is of all views" in found.output


def test_a_sink_that_cannot_be_opened_is_told_where_it_has_the_view(pipeline: Pipeline) -> None:
    """`cache` has nothing to do with order, and failed whoever asked for that."""
    said = list[str]()
    verifier = Verifier(pipeline, BROKEN["column"], Asked(views=("order",)), said.append)
    assert (list(verifier.builds), verifier.names, list(verifier.failed)) == (["search"], ["search", "both"], ["both"])
    assert [bool(one["error"]) for one in verifier.sinks()] == [False, True]
    assert [line.split()[0] for line in said if "can't be verified" in line] == ["both"]


def test_a_view_that_only_sinks_have_that_cannot_be_opened_fails_for_what_is_wrong_there(pipeline: Pipeline) -> None:
    """`customer` was no view of any sink, and another name proposed."""
    with pytest.raises(ConfigError) as error:
        Verifier(pipeline, BROKEN["column"], Asked(views=("customer",)))
    assert "name" in error.value.what and not isinstance(error.value, UnknownName)
    both = Verifier(pipeline, BROKEN["column"], Asked(views=("customer", "order")))
    assert (list(both.builds), list(both.failed)) == (["search"], ["cache", "both"])
    with pytest.raises(UnknownName, match="xyz"):
        Verifier(pipeline, BROKEN["column"], Asked(views=("xyz",)))


def test_a_sink_of_which_nobody_knows_the_views_may_have_any(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.verify.verifier.view_names", lambda *_: ())
    assert list(Verifier(pipeline, BROKEN["column"], Asked(views=("order",))).failed) == ["cache", "both"]
    with pytest.raises(ConfigError) as error:
        Verifier(pipeline, BROKEN["column"], Asked(views=("customer",)))
    assert not isinstance(error.value, UnknownName)
