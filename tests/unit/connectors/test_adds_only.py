"""What `run` does to the capture for altered tables where somebody has applied a newer file than it goes by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.log.client import Topic
from cdc.pipeline import Pipeline
from cdc.shapes import Shape, Shapes
from connectors import plan as planning
from connectors.actions import Action
from connectors.brought import brought_to_tables
from connectors.captured.captured import Captured
from connectors.connector import RunningConnector
from connectors.database.publication import SENT, Publication
from connectors.database.sightings import Sighting
from connectors.database.truncate import TRIGGERS, function_body
from connectors.debezium import connector_config
from connectors.names import Names
from connectors.rest import Status
from connectors.topics import FOR_EVER, LAG, wanted_topics
from operations.schema.steps import capture
from tests.support.connector_cases import catalogue, fact, pipeline

FLIGHTS, NEW, COME = "public.flights", "public.new", "public.come"
VERSION = 170000


def table(name: str, *columns: Column) -> Table:
    return Table("public", name, (Column("id", "integer", "int4"), *columns), ("id",))


def of(*names: str) -> Catalogue:
    return catalogue(*(table(name.removeprefix("public.")) for name in names))


def facts(*names: str, **more: object) -> dict[str, Any]:
    return {name: fact(name=name, partitions=(), replica_identity="f", **more) for name in names}


THEIRS = {**facts(FLIGHTS), **facts(NEW, generated=("n",)), **facts(COME)}
OLD = pipeline(policy={"toast": "full", "truncate": "refuse"})
# What somebody has applied meanwhile: a table more, another policy, other settings of topics and of the connector.
NEWER = pipeline(
    source={"tables": [FLIGHTS, NEW], "heartbeat_seconds": 7},
    kafka={"tombstone_retention_hours": 999},
    connect={"options": {"poll.interval.ms": 77}},
    policy={"toast": "full", "truncate": "propagate"},
)
NAMES = Names.of(OLD)


class Setup:
    """Postgres with the newer file's function and triggers."""

    info = SimpleNamespace(server_version=VERSION)

    def execute(self, query: Any, _given: Any = None) -> Any:
        if query == TRIGGERS:
            function = NAMES.qualified(NAMES.truncate_function)
            return [(name, "A", function) for name in (FLIGHTS, NEW)]
        assert "prosrc" in query
        return SimpleNamespace(fetchone=lambda: (function_body(NAMES, "propagate"), False))


def topics(made: Pipeline, *names: str) -> dict[str, Topic]:
    there = {topic.name: topic for topic in wanted_topics(made, of(*names))}
    flights = made.topic(FLIGHTS)
    # A view of the newer file shows its rows as they were.
    return there | {flights: replace(there[flights], config={**there[flights].config, LAG: FOR_EVER})}


def captured(*names: str) -> dict[str, Captured]:
    seen: Any = object.__new__(Sighting)
    return {name: Captured(name, "done", None, datetime.now(UTC), identity=seen) for name in names}


def actual(old: Catalogue, **other: Any) -> Any:
    """As the newer file's `apply` has left it; read for the older one, with its tables as they are now."""
    running = connector_config(NEWER, of(FLIGHTS, NEW), list(THEIRS.values()), (), VERSION)
    values = {
        "catalogue": old,
        "facts": facts(*old.tables),
        "publication": Publication(frozenset({FLIGHTS, NEW, *NAMES.published}), SENT, True, False, frozenset()),
        "slot": None,
        "connector": RunningConnector(running, Status("RUNNING", ("RUNNING",), ""), {"lsn": 1}),
        "captured": captured(FLIGHTS, NEW),
        "gaps": {},
        "topics": topics(NEWER, FLIGHTS, NEW),
        "plugins": frozenset(),
        "skipped": False,
        "fresh": False,
    }
    return SimpleNamespace(**values | other)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Of the older file."""
    nothing = ("plan_schema", "plan_write_tokens", "plan_grants", "plan_sweep", "plan_snapshot", "emptied_tables")
    for name in (*nothing, "refuse_unfit", "refuse_old_records", "refuse_discontinued", "refuse_read_twice"):
        monkeypatch.setattr(planning, name, lambda *_: [])
    monkeypatch.setattr(planning, "tables_anew", lambda *_: set())
    failover = [Action("slot", "s", "make it a failover slot")]
    monkeypatch.setattr(planning, "plan_failover", lambda *_: failover)
    monkeypatch.setattr(planning, "read_catalogue", lambda _, names, **__: of(*names))
    monkeypatch.setattr(planning, "read_facts", lambda _, names, __: {name: THEIRS[name] for name in names})
    db, kafka = Setup(), SimpleNamespace(beginning=lambda _: [])
    yield SimpleNamespace(
        pipeline=OLD, names=NAMES, setup=db, source=db, kafka=kafka, connect=None, connector="headwater-flights"
    )


def shown(actions: list[Action]) -> list[str]:
    return [
        f"{action.kind} {action.name}: {action.detail}".split(": put it back")[0].partition(", ")[0]
        for action in actions
    ]


def test_it_is_how_run_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def plan(*_: object, adds_only: bool, generated: set[str]) -> list[object]:
        asked.extend((adds_only, generated))
        return []

    once, now = (Shape(replace(table("flights"), generated=names)) for names in (("g",), ()))
    monkeypatch.setattr("operations.schema.steps.known_shapes", lambda _: Shapes({FLIGHTS: (once, now)}))

    for name in ("open_servers", "changing"):
        monkeypatch.setattr(f"connectors.apply.{name}", nullcontext)
    monkeypatch.setattr("connectors.apply.observe", lambda _: SimpleNamespace(catalogue=None, fresh=False))
    monkeypatch.setattr("connectors.apply.plan", plan)
    monkeypatch.setattr("connectors.apply.wait_ready", lambda _: None)
    monkeypatch.setattr("operations.generations.kept_views.with_kept_views", lambda one: one)
    capture(str, OLD)
    assert asked == [True, {f"{FLIGHTS}.g"}]


def test_nothing_of_a_newer_file_is_taken_back(servers: Any) -> None:
    """A partition that was attached cost another operator's table its capture, and its topic the versions that a view
    of his showed, for good."""
    there = actual(of(FLIGHTS))
    undone = shown(planning.plan(servers, there))
    for said in (
        f"publication {OLD.source.publication}: remove table {NEW}",
        f"snapshot {NEW}: no longer captured; its topic and the rows that sinks have of it stay",
        f"trigger {NEW}: remove the TRUNCATE trigger",
        f"topic {OLD.topic(FLIGHTS)}: set delete.retention.ms=604800000",
        "connector headwater-flights: set column.exclude.list",
    ):
        assert said in undone, "what `apply` of the older file would do"
    assert any(f"{NAMES.truncate_function}: change function" in said for said in undone)
    assert planning.plan(servers, there, adds_only=True) == []


def test_what_its_own_tables_lack_is_added(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = of(FLIGHTS, COME)
    there = actual(old, facts={**facts(FLIGHTS, generated=("g",)), **facts(COME)})
    servers.pipeline = pipeline(source={"tables": ["public.*"]})
    monkeypatch.setattr(planning, "read_facts", lambda *_: {**THEIRS, **there.facts})
    found = {action.kind: action for action in planning.plan(servers, there, adds_only=True)}
    assert found.keys() == {"trigger", "publication", "topic", "connector", "snapshot"}
    assert found["trigger"].name == found["snapshot"].name == COME
    assert found["topic"].name == OLD.topic(COME)
    assert (
        found["connector"].before.keys()
        == found["connector"].after.keys()
        == {
            "table.include.list",
            "column.exclude.list",
        }
    )
    listed = found["connector"].after["table.include.list"]
    assert all(rf"public\.{name}" in listed for name in ("flights", "new", "come"))
    assert found["connector"].after["column.exclude.list"] == r"public\.flights\.g,public\.new\.n"


def test_a_topic_that_was_there_before_its_table_is_set_as_the_file_says(servers: Any) -> None:
    """One that a broker has made by itself throws records away after a week."""
    servers.pipeline = pipeline(source={"tables": ["public.*"]})
    made = {OLD.topic(COME): Topic(OLD.topic(COME), OLD.kafka.partitions, 1, {})}
    there = actual(of(FLIGHTS, COME), topics=topics(NEWER, FLIGHTS, NEW) | made)
    [topic] = [one for one in planning.plan(servers, there, adds_only=True) if one.kind == "topic"]
    assert topic.name == OLD.topic(COME) and topic.after["cleanup.policy"] == "compact"


def test_a_topic_that_is_made_anew_is_made_as_it_was(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[Topic] = []
    monkeypatch.setattr(planning, "tables_anew", lambda *_: {FLIGHTS})

    def renewal(_: str, __: list[str], topics: list[Topic], ___: list[str], **____: object) -> list[Action]:
        renewed.extend(topics)
        return []

    monkeypatch.setattr(planning, "plan_renewal", renewal)
    planning.prepare(servers, actual(of(FLIGHTS)), adds_only=True)
    assert [topic.config[LAG] for topic in renewed] == [FOR_EVER]


def test_a_publication_of_another_role_that_lacks_nothing_is_no_error(servers: Any) -> None:
    there = actual(of(FLIGHTS)).publication
    theirs = replace(there, tables=there.tables | {"public.extra"}, owned=False, owner="dba")
    assert planning.plan(servers, actual(of(FLIGHTS), publication=theirs), adds_only=True) == []


def test_a_table_that_is_gone_stays_in_the_list_with_its_gap(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` captured another table that was new, and by the way forgot that this one's changes were missing."""
    monkeypatch.setattr(planning, "read_catalogue", lambda *_, **__: Catalogue())
    servers.pipeline = pipeline(source={"tables": ["public.*"]})
    assert "snapshot" not in {action.kind for action in planning.plan(servers, actual(of(FLIGHTS)), adds_only=True)}


@pytest.mark.parametrize(
    ("option", "set_by"),
    [
        ("column.exclude.list", "public.flights.ssn"),
        ("column.exclude.list", r"public\.flights\.ssn"),  # as we write it
        ("column.exclude.list", r"public\.new\.n,public\.flights\.ssn"),
        ("message.key.columns", "public.flights:id"),
        ("message.key.columns", "(.*).flights:id;public.new:id"),
    ],
)
def test_a_list_that_a_newer_file_has_set_by_hand_stays(servers: Any, option: str, set_by: str) -> None:
    """A column that somebody had just excluded flowed into Kafka again after a partition was attached."""
    servers.pipeline = pipeline(source={"tables": ["public.*"]})
    there = actual(of(FLIGHTS, COME), facts={**facts(FLIGHTS, generated=("g",)), **facts(COME)})
    running = {**there.connector.config, option: set_by}
    there.connector = replace(there.connector, config=running)
    plan = planning.plan(servers, there, adds_only=True, generated=[f"{FLIGHTS}.once"])
    [connector] = [action for action in plan if action.kind == "connector"]
    assert "table.include.list" in connector.after and option not in connector.after


def test_a_list_that_the_older_file_sets_by_hand_does_not_come_back(servers: Any) -> None:
    servers.pipeline = pipeline(connect={"options": {"column.exclude.list": "public.flights.ssn"}})
    assert planning.plan(servers, actual(of(FLIGHTS)), adds_only=True) == []


def test_lists_of_ours_follow_the_tables(servers: Any) -> None:
    """Of a column that is generated no more (DROP EXPRESSION) the values come; a key is named as its index is now."""
    there = actual(of(FLIGHTS), facts=facts(FLIGHTS, has_primary_key=False))
    lists = {
        "column.exclude.list": r"(?-i)public\.flights\.once,public\.new\.n",
        "message.key.columns": r"(?-i)public\.flights:b,a",
    }
    there.connector = replace(there.connector, config={**there.connector.config, **lists})
    now = {**THEIRS, **there.facts}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "read_facts", lambda *_: now)
        [connector] = planning.plan(servers, there, adds_only=True, generated=[f"{FLIGHTS}.once"])
    after = {"column.exclude.list": r"public\.new\.n", "message.key.columns": r"public\.flights:id"}
    assert (connector.before, connector.after) == (lists, after)


@pytest.mark.parametrize("policy", ["reselect", "full"])
def test_what_is_selected_again_is_brought_to_tables_where_both_files_do_it(policy: str) -> None:
    newer = pipeline(policy={"toast": policy}, connect={"options": {"poll.interval.ms": 77}})
    older = pipeline(policy={"toast": "reselect"})
    silent = Catalogue({FLIGHTS: table("flights", Column("tags", "integer[]", "_int4", array=True))})
    running, wanted = connector_config(newer, of(FLIGHTS)), connector_config(older, silent)
    assert ("nulls.type" in wanted) and "nulls.type" not in running
    found = brought_to_tables(running, wanted)
    assert found["poll.interval.ms"] == "77"
    if policy == "full":
        assert found == running
        assert brought_to_tables(wanted, running) == wanted, "and the other way round"
    else:
        assert {key: value for key, value in found.items() if running.get(key) != value} == {
            key: value for key, value in wanted.items() if key == "post.processors" or key.startswith("nulls.")
        }
