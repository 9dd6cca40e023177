"""What `plan`, `apply` and `drop` say of hundreds of tables: what is done to them in a line; and when they say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.errors import SourceError
from cdc.log.client import Topic
from connectors import apply as applying
from connectors.actions import Action, counted, run_all
from connectors.captured.captured import Captured, plan_captured
from connectors.database.publication import Publication, plan_publication
from connectors.drop import plan_drop
from connectors.names import Names
from connectors.snapshots.requests import plan_snapshot, plan_sweep
from console.cli.drop import command
from console.cli.shared import show_action
from console.cli.shared.show_action import Actions
from operations.edits.changes import Changes
from operations.plan import Plan
from tests.support.connector_cases import pipeline

FILE = Path("pipeline.yaml")


def names(count: int) -> list[str]:
    return [f"public.t{number:03}" for number in range(count)]


def site(**more: Any) -> Any:
    loaded = pipeline(**more.pop("parts", {}))
    return SimpleNamespace(pipeline=loaded, names=Names.of(loaded), setup=None, failed=set(), db=None, **more)


def grant(name: str, run: Any = lambda _: None) -> Action:
    return Action("grant", name, "GRANT SELECT to headwater", None, "SELECT", run)


def shown(actions: Iterable[Action], capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    with Actions(**options) as lines:
        for action in actions:
            lines.show(action)
    return capsys.readouterr().out.splitlines()


def test_what_is_done_to_many_tables_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    function = Action("function", "headwater.token_p", "create function", None, "function")
    found = shown([*map(grant, names(3)), function, *map(grant, names(300)), function], capsys)
    assert found == [
        *(f"+ grant            {name}: GRANT SELECT to headwater" for name in names(3)),
        "+ function         headwater.token_p: create function",
        "+ grant            300 tables: GRANT SELECT to headwater"
        " (public.t000, public.t001, public.t002, …; --json has all)",
        "+ function         headwater.token_p: create function",
    ]


def test_what_is_done_otherwise_is_not_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    def topic(name: str, before: str) -> Action:
        return Action("topic", name, "set segment.ms=1", {"segment.ms": before}, {"segment.ms": "1"})

    actions = [*(topic(name, "2") for name in names(5)), *(topic(name, "3") for name in names(4))]
    some = "(public.t000, public.t001, public.t002, …; --json has all)"
    assert shown(actions, capsys) == [
        f"~ topic            5 topics: set segment.ms=1 {some}",
        "      segment.ms: 2 -> 1",
        f"~ topic            4 topics: set segment.ms=1 {some}",
        "      segment.ms: 3 -> 1",
    ]
    [one] = shown(actions, capsys, done=True)  # nothing else differs
    assert "9 topics" in one and one.endswith("(public.t000, public.t001, public.t002, …)")
    usage = [Action("grant", name, "GRANT USAGE to headwater", None, "USAGE") for name in names(4)]
    assert "4 schemas: GRANT USAGE" in shown(usage, capsys)[0]


def test_tables_of_a_publication_are_a_line_and_json_is_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    actual = Publication(frozenset(), frozenset({"insert", "update", "delete"}), True, False, frozenset(names(4)))
    before, _ = plan_publication(replace(actual, tables=frozenset(names(4))), "p", names(304), 170000)
    assert shown(before, capsys) == [
        "~ publication      4 tables: p sends all of their rows and columns"
        " (public.t000, public.t001, public.t002, …; --json has all)",
        "+ publication      300 tables: add to p (public.t004, public.t005, public.t006, …; --json has all)",
    ]
    last = {"kind": "publication", "name": "p", "detail": "add table public.t303", "before": None}
    assert before[-1].to_dict() == last | {"after": "public.t303"}
    assert str(before[-1]) == "publication p: add table public.t303", "where it has stopped"
    _, after = plan_publication(replace(actual, tables=frozenset(names(5))), "p", [], 170000)
    assert "- publication      5 tables: remove from p (public.t000, " in shown(after, capsys)[0]


def test_a_list_of_names_is_cut_unless_it_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    of = tuple(names(301))
    action = Action("topic", ", ".join(of), "delete", "present", None, of=of)
    [cut] = shown([action], capsys, all_in="--dry-run")
    assert cut == (
        "- topic            301 topics: delete (public.t000, public.t001, public.t002, …; --dry-run has all)"
    )
    [whole] = shown([action], capsys, all_in="")
    assert whole == f"- topic            {', '.join(of)}: delete"
    assert shown([action], capsys, done=True) == [whole], "no other run would show it"
    assert shown([], capsys, done=True) == []
    few = replace(action, name=", ".join(of[:3]), of=of[:3])
    assert shown([few], capsys) == [f"- topic            {', '.join(of[:3])}: delete"]


@pytest.mark.parametrize(("words", "names_all"), [(["--yes"], True), (["--dry-run"], True), ([], False)])
def test_a_drop_that_nobody_is_asked_about_names_all_that_it_removes(
    monkeypatch: pytest.MonkeyPatch, words: list[str], names_all: bool
) -> None:
    of = tuple(names(301))
    action = Action("topic", ", ".join(of), "delete", "present", None, of=of)
    monkeypatch.setattr("cdc.pipeline.load", lambda _: pipeline())
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [action])
    for done in (
        "connectors.drop.drop",
        "console.cli.drop._forget_letters",
        "operations.freshness.note.forget_source_note",
        "operations.generations.targets.drop_sink_state",
        "operations.recapture.forget_begun",
        "operations.run.source_watch.forget",
        "operations.state.accepted.forget_captured",
        "operations.state.folder.state_dir",
    ):
        monkeypatch.setattr(done, lambda *_, **__: None)
    monkeypatch.setattr("operations.generations.targets.sink_state", lambda *_: [])
    output = CliRunner().invoke(command, [str(FILE), *words]).output
    assert (", ".join(of) in output, "--dry-run has all" in output) == (names_all, not names_all)


@pytest.mark.parametrize(("words", "told"), [([], True), (["--topics"], False), (["--keep-sinks"], False)])
def test_a_drop_tells_that_dead_letters_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, words: list[str], told: bool
) -> None:
    """They are promised for a month, and the topic that they lie in stays."""
    monkeypatch.setattr("cdc.pipeline.load", lambda _: pipeline())
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [])
    monkeypatch.setattr("operations.state.folder.state_dir", lambda *_: None)
    monkeypatch.setattr("operations.generations.targets.sink_state", lambda *_: ["search: its indices"])
    output = CliRunner().invoke(command, [str(FILE), "--dry-run", *words]).output
    assert ("dead letters of " in output) == told


@pytest.mark.parametrize(
    ("words", "held", "told"),
    [([], ["cache: its keys"], ["state removed"]), ([], [], []), (["--keep-sinks"], [], ["state stays"])],
)
def test_a_drop_says_that_state_is_removed_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch, words: list[str], held: list[str], told: list[str]
) -> None:
    """It did where no sink had ever run. It is looked at all the same, for one may run since the question."""
    looked = list[str]()

    def drop(_: object, show: Callable[[Action], None], *, topics: bool, first: Sequence[Action]) -> None:
        assert not topics
        for action in first:
            action.run(site())
        for action in (*first, Action("slot", "s", "drop", "present", None)):
            show(action)

    monkeypatch.setattr("cdc.pipeline.load", lambda _: pipeline())
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [Action("slot", "s", "drop", "present")])
    monkeypatch.setattr("connectors.drop.drop", drop)
    for name in (
        "operations.state.folder.refuse_not_begun",
        "console.cli.drop._forget_letters",
        "operations.freshness.note.forget_source_note",
        "operations.recapture.forget_begun",
        "operations.run.source_watch.forget",
        "operations.state.accepted.forget_captured",
        "operations.state.folder.state_dir",
    ):
        monkeypatch.setattr(name, lambda *_, **__: None)
    monkeypatch.setattr("operations.generations.targets.drop_sink_state", lambda *_: looked.append("sinks"))
    monkeypatch.setattr("operations.generations.targets.sink_state", lambda *_: list(held))
    output = CliRunner().invoke(command, [str(FILE), "--yes", *words]).output
    lines = [line for line in output.splitlines() if line.startswith(("state ", "slot "))]
    assert lines == [*told, "slot removed"]
    assert looked == ([] if words else ["sinks"])


def test_lists_of_names_are_one_by_one() -> None:
    there = {name: Captured(name, "done", None, datetime.now(UTC)) for name in names(5)}
    [remember], _ = plan_captured(Names("headwater", "p"), "p", names(5), there, fresh=False, emptied=(), gaps={})
    assert remember.names == tuple(names(5))


def test_who_takes_a_table_out_is_told_that_its_rows_stay() -> None:
    there = {name: Captured(name, "done", None, datetime.now(UTC)) for name in names(1)}
    _, [left] = plan_captured(Names("headwater", "p"), "p", [], there, fresh=False, emptied=(), gaps={})
    assert left.detail.endswith("the rows that sinks have of it stay: put it back to erase one")


def test_a_request_and_a_sweep_have_their_tables_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {name: Captured(name, "initial", None, datetime.now(UTC)) for name in names(5)}
    actual: Any = SimpleNamespace(
        fresh=False,
        slot=True,
        captured=there,
        connector=SimpleNamespace(streaming=True),
        catalogue=SimpleNamespace(tables=there),
    )
    monkeypatch.setattr("connectors.snapshots.requests.hear", lambda _: SimpleNamespace(interrupted=True))
    [asked], [swept] = plan_snapshot(site(), actual, set(there)), plan_sweep(site(), actual)
    assert asked.names == swept.names == tuple(there)


def test_a_drop_has_its_topics_and_triggers_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in ("connector", "slot", "publication"):
        monkeypatch.setattr(f"connectors.drop.read_{nothing}", lambda *_: None)

    class Rows(list[Any]):
        def fetchall(self) -> list[Any]:
            return []

    setup = SimpleNamespace(execute=lambda *_: Rows((name, "A", "f") for name in names(5)))
    there = SimpleNamespace(describe=lambda names: {name: Topic(name, 1, 1, {}) for name in names})
    servers = site(source=None, connect=None, connector="c", kafka=there)
    servers.setup = setup
    triggers, topics = plan_drop(servers, topics=False)
    assert triggers.names == tuple(names(5))
    assert len(topics.names) > 1 and ", ".join(topics.names) == topics.name


def test_what_was_done_before_an_error_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_: object) -> None:
        raise SourceError("no")

    with pytest.raises(SourceError), Actions(done=True) as lines:
        run_all(None, [*map(grant, names(9)), grant("public.z", fails)], lines.show)  # type: ignore[arg-type]
    assert "9 tables: GRANT SELECT" in capsys.readouterr().out


def test_an_action_that_stands_alone_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The next one may take a minute."""
    with Actions() as lines:
        lines.show(Action("connector", "headwater-p", "create", None, "x"))
        assert "headwater-p: create" in capsys.readouterr().out


def test_what_was_done_is_told_before_anything_that_may_take_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The action of another kind that begins, and the wait for the connector: a signal leaves the rest untold."""
    told: dict[str, str] = {}

    def looks(at: str) -> None:
        told[at] = capsys.readouterr().out

    publication = Action("publication", "p", "create", None, "p", lambda _: looks("action"))
    plan = [*map(grant, names(9)), publication, *map(grant, names(5))]
    monkeypatch.setattr(applying, "open_servers", lambda _: nullcontext())
    monkeypatch.setattr(applying, "changing", lambda _: nullcontext())
    monkeypatch.setattr(applying, "observe", lambda _: SimpleNamespace(catalogue=None, fresh=False))
    monkeypatch.setattr(applying, "plan", lambda *_, **__: plan)
    monkeypatch.setattr(applying, "wait_ready", lambda _: looks("wait"))
    monkeypatch.setattr(show_action, "KEPT_SECONDS", 60.0)
    with Actions(done=True) as lines:
        applying.apply(pipeline(), lines.show, begins=lines.begins)
    assert "9 tables: GRANT SELECT" in told["action"]
    assert "p: create" in told["wait"] and "5 tables: GRANT SELECT" in told["wait"]


def test_what_was_done_is_kept_no_longer_than_a_moment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next of the same kind may wait for a lock."""
    monkeypatch.setattr(show_action, "KEPT_SECONDS", 0.05)
    with Actions(done=True) as lines:
        for action in map(grant, names(3)):
            lines.show(action)
        kept = lines.timer
        kept.join(10)
        assert len(capsys.readouterr().out.splitlines()) == 3
        lines.show(grant("public.z"))
    assert len(capsys.readouterr().out.splitlines()) == 1 and lines.timer is not kept and lines.timer.finished.is_set()


def test_changes_are_counted_with_their_tables() -> None:
    read = [Action("snapshot", name, "rows will be read", None, "initial") for name in names(300)]
    grants = [grant(name) for name in names(1203)]
    assert counted([*grants, *read]) == "1,503 changes for 300 tables"
    assert counted(read[:3], 2) == "5 changes"
    assert Plan("p", [*grants, *read], [], [], None).closing("f").startswith("1,503 changes for 300 tables; `headwater")
    taken = Plan("p", read, [], [], Changes(), (), set(names(300))).closing("f")
    assert taken.endswith("`run` is making them: it takes up public.t000, public.t001, public.t002, …")
