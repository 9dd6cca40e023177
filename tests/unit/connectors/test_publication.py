"""What must change in a publication, without a server."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from psycopg import sql

from cdc.errors import SourceError
from connectors import drop as dropping
from connectors import plan as planning
from connectors.actions import Action
from connectors.database.publication import SENT, Publication, heeds_changes, plan_publication, used_elsewhere
from connectors.names import Names
from connectors.preflight import publication as check
from connectors.preflight.model import Level
from console.cli.drop import command
from tests.support.connector_cases import catalogue, pipeline

SET = "(publish = 'insert, update, delete', publish_via_partition_root = true)"
RIGHT = {"operations": SENT, "via_root": True, "all_tables": False}


def publication(*tables: str, **other: object) -> Publication:
    values = {"tables": frozenset(tables), "filtered": frozenset(), **RIGHT, **other}
    return Publication(**values)  # type: ignore[arg-type]


def shown(actions: list[Action]) -> list[str]:
    return [f"{action.kind} {action.name}: {action.detail}" for action in actions]


def done(actions: list[Action]) -> list[list[str]]:
    """What each action says to Postgres."""

    class Setup:
        said: list[str]

        def transaction(self) -> AbstractContextManager[None]:
            return nullcontext()

        def execute(self, statement: sql.Composed) -> None:
            self.said.append(statement.as_string())

    found, setup = [], Setup()
    for action in actions:
        setup.said = []
        action.run(SimpleNamespace(setup=setup))  # type: ignore[arg-type]
        found.append(setup.said)
    return found


def test_publication_gains_tables_before_the_connector_and_loses_them_after() -> None:
    before, after = plan_publication(publication("s.a", "s.b"), "p", ["s.b", "s.c"], 170000)
    assert shown(before) == ["publication p: add table s.c"]
    assert shown(after) == ["publication p: remove table s.a"]


def test_publication_with_wrong_options_or_filters_is_mended() -> None:
    actual = publication("s.a", operations=frozenset({"insert", "truncate"}), filtered=frozenset({"s.a"}))
    before, after = plan_publication(actual, "p", ["s.a"], 170000)
    assert shown(before) == ["publication p: set options", "publication p: send all rows and columns of s.a"]
    assert after == []


def test_publication_of_all_tables_is_not_narrowed() -> None:
    assert plan_publication(publication("s.a", "s.b", all_tables=True), "p", ["s.a"], 170000) == ([], [])


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (publication("s.a"), [['ALTER PUBLICATION "p" ADD TABLE "s"."b"']]),
        (
            publication("s.a", "s.b", filtered=frozenset({"s.a"})),
            [['ALTER PUBLICATION "p" DROP TABLE "s"."a"', 'ALTER PUBLICATION "p" ADD TABLE "s"."a"']],
        ),
        (publication("s.a", "s.b", operations=frozenset({"insert"})), [[f'ALTER PUBLICATION "p" SET {SET}']]),
        (None, [[f'CREATE PUBLICATION "p" FOR TABLE "s"."a", "s"."b" WITH {SET}']]),
    ],
)
def test_nobody_is_held_up_by_a_table_that_comes_into_a_publication(
    actual: Publication | None, said: list[list[str]]
) -> None:
    """A lock held up all that write, and was not had beside a VACUUM of one partition."""
    before, _ = plan_publication(actual, "p", ["s.b", "s.a"], 170000)
    assert done(before) == said


@pytest.mark.parametrize(
    ("version", "heeds"),
    [(130023, False), (140017, False), (140018, True), (160008, False), (160009, True), (170005, True), (180000, True)],
)
def test_releases_that_heed_a_publications_change(version: int, heeds: bool) -> None:
    assert heeds_changes(version) is heeds


EVERY = {"all_tables": True, "whole_database": True, "owner": "postgres", "owned": False}
NAMES = Names("headwater", "flights")


def test_a_publication_of_the_whole_database_gets_its_tables_by_itself() -> None:
    """Our own ones do not exist yet, and Postgres takes none into it: the first `apply` ended in the middle."""
    wanted = ["s.a", *NAMES.published]
    assert plan_publication(publication("s.a", **EVERY), "p", wanted, 170000) == ([], [])
    of_schemas = publication("s.a", all_tables=True)
    assert [action.detail for action in plan_publication(of_schemas, "p", wanted, 170000)[0]] == [
        f"add table {table}" for table in sorted(NAMES.published)
    ]


def test_a_publication_of_another_role_is_refused_before_anything_is_done() -> None:
    other = publication("s.a", **{**EVERY, "via_root": False})
    with pytest.raises(SourceError, match=r"must change \(set options\), and belongs to postgres") as refused:
        plan_publication(other, "p", ["s.a"], 170000)
    assert refused.value.fix.startswith(f"as postgres: ALTER PUBLICATION p SET {SET}; or name a source.publication")
    with pytest.raises(SourceError) as refused:
        plan_publication(publication("s.a", owner="postgres", owned=False, role="own"), "p", ["s.a", "s.b"], 170000)
    fix = "as postgres, or as a superuser: ALTER PUBLICATION p OWNER TO own; or name a source.publication"
    assert refused.value.fix.startswith(fix), "no membership in a superuser's role"
    of_schemas = publication("s.a", all_tables=True, owner="postgres", owned=False, role="own")
    with pytest.raises(SourceError) as refused:
        plan_publication(of_schemas, "p", ["s.a", "s.b"], 170000)
    assert refused.value.fix.startswith("name a source.publication"), "Postgres gives one to superusers alone"
    assert plan_publication(publication("s.a", owner="dba", owned=False), "p", ["s.a"], 170000) == ([], [])


def test_who_only_adds_is_not_refused_for_what_would_be_taken_back() -> None:
    """A partition that was attached was not captured, for the sake of a table of somebody else's in the publication."""
    theirs = publication("s.a", "s.extra", owner="dba", owned=False, filtered=frozenset({"s.extra"}))
    assert plan_publication(theirs, "p", ["s.a"], 170000, adds_only=True) == ([], [])
    with pytest.raises(SourceError, match=r"must change \(add table s\.b\), and belongs to dba"):
        plan_publication(theirs, "p", ["s.a", "s.b"], 170000, adds_only=True)


@pytest.mark.parametrize(
    ("actual", "name", "refused"),
    [
        (publication("s.a", "s.other"), "warehouse_pub", True),
        (publication("s.a"), "warehouse_pub", False),  # made for this pipeline, by hand
        (publication("s.a", "s.other", *NAMES.published), "warehouse_pub", False),  # taken over before
        (publication("s.a", "s.other"), "headwater_flights", False),
        (publication("s.a", "s.other", all_tables=True), "warehouse_pub", False),  # it is not narrowed
        (None, "warehouse_pub", False),
    ],
)
def test_a_publication_that_somebody_else_uses_is_not_taken(
    actual: Publication | None, name: str, refused: bool
) -> None:
    """It lost its other tables at `apply`, and was gone after `drop`."""
    error = used_elsewhere(actual, name, NAMES, ["s.a", *NAMES.published])
    assert (error is not None) is refused
    if error is not None:
        assert "publication warehouse_pub holds s.other, which" in error.what
        assert "DROP PUBLICATION warehouse_pub" in error.fix


def test_plan_refuses_a_publication_that_somebody_else_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pipeline(source={"publication": "warehouse_pub"})
    for other in ("refuse_unfit", "refuse_old_records"):
        monkeypatch.setattr(planning, other, lambda *_: None)
    servers: Any = SimpleNamespace(pipeline=made, names=Names.of(made))
    elsewhere = publication("public.flights", "public.other")
    actual: Any = SimpleNamespace(publication=elsewhere, captured={}, facts={}, catalogue=catalogue())
    with pytest.raises(SourceError, match=r"publication warehouse_pub holds public\.other"):
        planning.prepare(servers, actual)
    actual.captured = {"public.flights": None}
    with pytest.raises(AttributeError):  # it goes on, to what is asked of a server
        planning.prepare(servers, actual)


def checked(monkeypatch: pytest.MonkeyPatch, actual: Publication, captured: dict[str, object]) -> list[Any]:
    made = pipeline(source={"publication": "warehouse_pub"})
    db = SimpleNamespace(info=SimpleNamespace(server_version=170000))
    site = SimpleNamespace(pipeline=made, names=Names.of(made), catalogue=catalogue(), db=db, setup_or_db=db)
    monkeypatch.setattr(check, "read_publication", lambda *_: actual)
    monkeypatch.setattr(check, "read_captured", lambda *_: captured)
    return list(check.run(site))  # type: ignore[arg-type]


def test_check_says_whose_a_publication_is(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = publication("public.flights", "public.other")
    [found] = checked(monkeypatch, elsewhere, {})
    assert found.level is Level.ERROR and "warehouse_pub holds public.other" in found.message
    [found] = checked(monkeypatch, elsewhere, {"public.flights": None})
    assert found.message.startswith("publication warehouse_pub does not send headwater."), "applied before: mended"
    assert checked(monkeypatch, publication("public.flights", **EVERY), {}) == []
    [found] = checked(monkeypatch, publication("public.flights", **{**EVERY, "via_root": False}), {})
    assert "has other options" in found.message and found.fix.startswith("it belongs to postgres: as postgres: ALTER")


@pytest.mark.parametrize(
    ("actual", "name", "detail"),
    [
        (publication("s.a", *NAMES.published), "p", "drop"),
        (publication("s.a"), "headwater_flights", "drop"),
        (publication("s.a", *NAMES.published, **{**EVERY, "owned": True}), "headwater_flights", "drop"),
        (publication("s.a", "s.b"), "p", "stays: nothing tells that this pipeline has made it; DROP PUBLICATION p"),
        (publication("s.a", *NAMES.published, **EVERY), "p", "stays: it belongs to postgres; DROP PUBLICATION p"),
    ],
)
def test_a_drop_leaves_a_publication_of_others_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, actual: Publication, name: str, detail: str
) -> None:
    """It ended there each time, and the triggers stayed, which refuse the application's TRUNCATE."""
    made = pipeline(source={"publication": name})
    monkeypatch.setattr(dropping, "read_publication", lambda *_: actual)
    servers: Any = SimpleNamespace(pipeline=made, names=Names.of(made), setup=None)
    [action] = dropping._of_publication(servers)
    assert (action.detail, action.after) == (detail, None if detail == "drop" else "present")
    if action.after is not None:
        action.run(servers)  # nothing


def test_what_stays_is_not_asked_about_and_is_not_called_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    stays = Action("publication", "p", "stays: it belongs to postgres; DROP PUBLICATION p", "present", "present")
    monkeypatch.setattr("cdc.pipeline.load", lambda _: pipeline())
    monkeypatch.setattr("connectors.drop.plan_drop_pipeline", lambda *_, **__: [stays])
    monkeypatch.setattr("operations.state.folder.state_dir", lambda *_: None)
    monkeypatch.setattr("operations.recapture.forget_begun", lambda *_: None)
    monkeypatch.setattr("operations.state.accepted.forget_captured", lambda *_, **__: None)
    monkeypatch.setattr("operations.generations.targets.sink_state", lambda *_: [])
    output = CliRunner().invoke(command, [__file__]).output
    assert output.splitlines() == [f"~ publication      p: {stays.detail}", "nothing to remove"]
