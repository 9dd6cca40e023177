"""What `check` finds of hundreds of tables, and `apply` refuses: what they have in common in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.catalogue import Column, Table
from cdc.log.client import Topic
from connectors.database.grants import Right
from connectors.database.publication import SENT, Publication
from connectors.names import Names
from connectors.plan_refusals import refuse_unfit
from connectors.preflight import CHECKS, Answer, Finding, Level, brokers, publication, rights, tables, toast
from connectors.preflight.gathered import gathered, some, tally
from connectors.preflight.primary_keys import key_findings
from connectors.preflight.tables import kind_findings
from connectors.survey import _left_out
from console.cli.check import command, show, to_dict
from tests.support.connector_cases import catalogue, fact, pipeline

FILE = Path("pipeline.yaml")


def names(count: int) -> list[str]:
    return [f"public.t{number:03}" for number in range(count)]


FIRST = "public.t000, public.t001, public.t002, public.t003, public.t004"


def keyless(count: int) -> list[Finding]:
    found = []
    for name in names(count):
        table = Table("public", name.removeprefix("public."), (Column("a", "text", "text"),), ())
        found += key_findings(table, fact(name=name, has_primary_key=False, unique_keys=0))
    return found


def test_names_are_cut_after_the_first() -> None:
    assert some(names(5)) == FIRST
    assert some(names(1300)) == f"{FIRST} and 1,295 more"


def test_what_many_tables_have_in_common_is_one_finding_and_json_has_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert gathered(keyless(3)) == keyless(3)
    [told] = gathered(keyless(17))
    assert told.message == (
        f"17 tables have no primary key ({FIRST} and 12 more): updates and deletes could not be matched with rows"
    )
    assert told.fix.startswith("ALTER TABLE public.t000 ADD PRIMARY KEY (…)") and told.fix.endswith(
        "; and so the others"
    )
    answer = Answer(CHECKS[0], tuple(keyless(300)))
    assert show(answer, FILE) == gathered(keyless(300))
    assert len(capsys.readouterr().out.splitlines()) == 3
    findings = to_dict(answer)["findings"]
    assert isinstance(findings, Sequence) and len(findings) == 300


def test_what_differs_stays_apart_and_in_its_place() -> None:
    other = Finding(Level.NOTE, "slot", "there is none yet")
    noted = [replace(one, level=Level.NOTE) for one in keyless(4)]
    told = gathered([*keyless(4), other, *noted, other])
    assert [(one.level, one.about) for one in told] == [
        (Level.ERROR, "public.t000"),
        (Level.NOTE, "slot"),
        (Level.NOTE, "public.t000"),
        (Level.NOTE, "slot"),
    ]


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"generated": ("total",)}, "generated columns are not captured in 41 tables (public.t000, "),
        ({"stored": ("total",)}, "41 tables have a stored generated column (public.t000, "),
        ({"row_security": True}, "row-level security is on for 41 tables (public.t000, "),
        ({"persistence": "u"}, "41 tables are unlogged (public.t000, "),
        ({"has_children": True}, "41 tables are part of inheritance trees (public.t000, "),
    ],
)
def test_tables_of_a_kind_are_one_finding(about: dict[str, object], said: str) -> None:
    found = [one for name in names(41) for one in kind_findings(fact(name=name, **about), 180000)]
    assert len(found) == 41
    [told] = gathered(found)
    assert told.message.startswith(said) and " and 36 more)" in told.message


@pytest.mark.parametrize(("kind", "words"), [("unlogged", "unlogged"), ("foreign", "foreign tables")])
def test_partitions_that_are_not_in_the_log_are_named_in_part_and_json_has_all(kind: str, words: str) -> None:
    [found] = kind_findings(fact(kind="p", **{kind: tuple(names(300))}), 180000)
    assert found.message.endswith(f"not in the log: {', '.join(names(300))} ({words})")
    assert kind == "foreign" or all(f"ALTER TABLE {name} SET LOGGED" in found.fix for name in names(300))
    [told] = gathered([found])
    assert told.message.endswith(f"not in the log: {FIRST} and 295 more ({words})")
    assert "public.t005" not in told.fix and told.fix.endswith("; or leave s.t out")
    assert kind == "foreign" or "FILE --json` has all): `headwater run` then" in told.fix
    # What `init` says: its file does not name the table, so `check` has no more of it.
    left_out = _left_out("s.t", found)
    assert left_out.why == told.message
    assert left_out.fix == told.fix.replace(" (`headwater check FILE --json` has all)", "")


def site(**more: Any) -> Any:
    loaded = pipeline(**more.pop("parts", {}))
    return SimpleNamespace(pipeline=loaded, names=Names.of(loaded), setup=None, failed=set(), db=None, **more)


@pytest.mark.parametrize("owner", [True, False])
@pytest.mark.parametrize("count", [7, 300])
def test_missing_rights_name_some_tables_and_no_sql_where_apply_grants(
    monkeypatch: pytest.MonkeyPatch, owner: bool, count: int
) -> None:
    monkeypatch.setattr(rights, "missing_rights", lambda *_: [Right("SELECT", name) for name in names(count)])
    for of_the_owner in ("_setup", "_hidden"):
        monkeypatch.setattr(rights, of_the_owner, lambda *_: [])
    monkeypatch.setattr(rights, "foreign", lambda *_: None)
    parts = {"source": {"setup_user": "own", "setup_password": "x"}} if owner else {}
    [found] = rights.run(site(catalogue=catalogue(), parts=parts))
    every = ", ".join(names(count))
    whole = f"GRANT SELECT ON {every} TO headwater"
    assert (found.about, found.message) == (every, f"role headwater has no SELECT on {every}")
    assert found.fix == (f"`headwater apply` does it: {whole}" if owner else whole)
    [told] = gathered([found])
    assert told.message == f"role headwater has no SELECT on {count} tables ({FIRST} and {count - 5} more)"
    cut = f"GRANT SELECT ON {FIRST} TO headwater; and so the others (`headwater check FILE --json` has all)"
    assert told.fix == ("`headwater apply` does it" if owner else whole if count == 7 else cut)


def test_tables_of_another_owner_are_one_finding_with_one_grant() -> None:
    class Setup:
        def execute(self, query: str, *_: object) -> Any:
            return SimpleNamespace(fetchone=lambda: (True,)) if "CREATE" in query else [("app", False)]

    facts = {name: fact(name=name, owner="app") for name in names(212)}
    found = list(rights._setup(site(facts=facts), Setup(), "own"))  # type: ignore[arg-type]
    assert len(found) == 212
    [told] = gathered(found)
    assert told.message.startswith(f"212 tables belong to app ({FIRST} and 207 more): own can't add them")
    assert told.fix == 'set source.setup_user to the owner, or GRANT "app" TO "own"'


@pytest.mark.parametrize("policy", ["full", "reselect", "allow"])
def test_large_values_name_some_tables(policy: str) -> None:
    held = [
        Table("public", name.removeprefix("public."), (Column("a", "text", "text"),), ("a",)) for name in names(300)
    ]
    facts = {name: fact(name=name, toasted=True) for name in names(300)}
    [found] = toast.run(site(parts={"policy": {"toast": policy}}, facts=facts, catalogue=catalogue(*held)))
    assert found.message.endswith("public.t298 (a), public.t299 (a)")
    assert "ALTER TABLE public.t299 REPLICA IDENTITY FULL" in found.fix and found.about == ", ".join(names(300))
    [told] = gathered([found])
    assert told.message.endswith("public.t004 (a) and 295 more")
    assert len(told.fix) < 400 and "public.t005" not in told.fix
    assert told.fix == "`headwater apply` sets REPLICA IDENTITY FULL" or "FILE --json` has all" in told.fix


def test_a_publication_that_lacks_many_tables_names_some(monkeypatch: pytest.MonkeyPatch) -> None:
    actual = Publication(frozenset(), SENT, True, False, frozenset())
    monkeypatch.setattr(publication, "read_publication", lambda *_: actual)
    [found] = publication.run(site(catalogue=SimpleNamespace(tables=dict.fromkeys(names(300)))))
    assert ", ".join(names(300)) in found.message and found.about == "headwater_flights"
    [told] = gathered([found])
    assert told.message.endswith("public.t001 and 298 more")


def test_topics_that_are_gone_are_named_in_part() -> None:
    found = brokers._missing(site(connect=SimpleNamespace(config=lambda _: {})), names(300))
    assert ", ".join(names(300)) in found.message and found.about == "topics"
    [told] = gathered([found])
    assert f"writes to: {FIRST} and 295 more; it waits" in told.message


def test_topics_with_the_same_wrong_settings_are_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = [
        SimpleNamespace(name=name, before={}, after={"segment.ms": "1"}, detail="set segment.ms=1") for name in names(9)
    ]
    monkeypatch.setattr(brokers, "plan_topics", lambda *_: actions)
    kafka = SimpleNamespace(describe=lambda *_: {}, beginning=lambda _: [])
    asked = site(kafka=kafka, catalogue=catalogue(), source=Exception())
    [told] = gathered(brokers.run(asked))
    assert told.message == (
        f"9 topics ({FIRST} and 4 more) have other settings than the pipeline's: segment.ms=1 is wanted"
    )


def test_topics_of_too_few_copies_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Topic(name, 2, 3, {}) for name in names(9)]
    there = {topic.name: replace(topic, replication=1) for topic in wanted}
    monkeypatch.setattr(brokers, "wanted_topics", lambda *_: wanted)
    kafka = SimpleNamespace(describe=lambda *_: there, beginning=None)  # not asked: none is to be made
    asked = site(kafka=kafka, catalogue=catalogue(), source=Exception())
    [told] = gathered(brokers.run(asked))
    assert told.level is Level.WARNING and "kafka-reassign-partitions.sh" in told.fix
    assert told.message == (
        f"9 topics ({FIRST} and 4 more) hold 1 copy of each record, and kafka.replication_factor is 3"
    )
    there |= {topic.name: replace(topic, replication=more) for topic, more in zip(wanted, [3, 4] * 5, strict=False)}
    assert list(brokers.run(asked)) == []


def test_a_topic_of_somebody_elses_that_kafka_would_call_the_same_is_told() -> None:
    kafka = SimpleNamespace(
        describe=lambda *_: {},
        beginning=lambda _: ["flights_public_flights", "flights.public.x"],
    )
    [told] = brokers.run(site(kafka=kafka, catalogue=catalogue(), source=Exception()))
    assert told.level is Level.ERROR and "kafka.topic_prefix" in told.fix
    assert "flights.public.flights beside flights_public_flights: " in told.message


def test_apply_refuses_many_tables_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.plan_refusals.Site", lambda *_: None)
    for check in (tables, toast):
        monkeypatch.setattr(check, "CHECK", replace(check.CHECK, run=lambda _: []))
    keys = replace(CHECKS[0], run=lambda _: keyless(300))
    monkeypatch.setattr("connectors.plan_refusals.primary_keys.CHECK", keys)
    servers: Any = SimpleNamespace(pipeline=pipeline(), source=None, setup=None, kafka=None, connect=None)
    with pytest.raises(Exception, match=r"^300 tables have no primary key") as refused:
        refuse_unfit(servers)
    assert len(str(refused.value)) < 800


def test_what_has_scrolled_away_is_tally() -> None:
    found = [Finding(level, "a", "b") for level in (Level.NOTE, Level.WARNING, Level.NOTE, Level.ERROR)]
    assert tally(found) == "1 warning, 2 notes"
    assert tally(found[:1]) == "1 note"
    assert tally([]) == ""


def test_ready_says_how_many_warnings_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding(Level.WARNING, "a", "b"), *(replace(one, level=Level.NOTE) for one in keyless(300))]
    monkeypatch.setattr("cdc.pipeline.load", lambda _: pipeline())
    monkeypatch.setattr("connectors.preflight.preflight", lambda _: [Answer(CHECKS[0], tuple(findings))])
    for one in ("sinks", "views", "warehouses", "webhooks"):
        monkeypatch.setattr(f"operations.check.{one}.checked_{one}", lambda *_: [])
    done = CliRunner().invoke(command, [str(FILE)])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "ready; 1 warning, 1 note")
    findings.clear()
    assert CliRunner().invoke(command, [str(FILE)]).output.splitlines()[-1] == "ready"
