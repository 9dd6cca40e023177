"""What is told of a Postgres that others run, and set up as they like."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import SourceError
from connectors.actions import Action, run_all, statements
from connectors.plan_refusals import refuse_unfit
from connectors.preflight import disk, primary_keys, role, tables, toast
from connectors.preflight.model import Level, Site
from connectors.preflight.tables import kind_findings
from connectors.tables.facts import read_facts
from tests.support.connector_cases import fact, pipeline


class Rows:
    """A connection that answers each question by the first of its keys that is in it."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.asked = answers, list[str]()

    def execute(self, query: Any, values: object = None) -> Any:
        text = query if isinstance(query, str) else query.as_string()
        self.asked.append(text)
        found = next((rows for part, rows in self.answers.items() if part in text), [])
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(fetchall=lambda: found, fetchone=lambda: found[0] if found else None)

    def transaction(self) -> Any:
        return nullcontext()


@pytest.mark.parametrize(
    ("service", "fix"),
    [
        ([], "ALTER ROLE headwater REPLICATION (as a superuser)"),
        (
            [("rds_replication", False)],
            "GRANT rds_replication TO headwater, as the service grants it; or ALTER ROLE headwater REPLICATION",
        ),
    ],
)
def test_a_role_that_may_not_replicate_is_granted_it_as_the_service_does(
    service: list[tuple[str, bool]], fix: str
) -> None:
    """On RDS nobody may ALTER ROLE … REPLICATION, and the check that knew so was skipped."""
    answers = {"rolreplication": [(False, False, False)], "ANY(%s)": service}
    [found] = role.run(SimpleNamespace(pipeline=pipeline(), facts={}, db=Rows(answers)))  # type: ignore[arg-type]
    assert found.level is Level.ERROR and found.fix.startswith(fix)
    answers["ANY(%s)"] = [("cloudsqlreplica", False), ("rds_replication", True)]
    assert not list(role.run(SimpleNamespace(pipeline=pipeline(), facts={}, db=Rows(answers))))  # type: ignore[arg-type]


def test_a_slot_that_may_be_lost_by_time_is_warned_of() -> None:
    def warned(timeout: str) -> list[str]:
        settings = {"max_slot_wal_keep_size": "1024", "max_wal_size": "1024", "idle_replication_slot_timeout": timeout}
        site = SimpleNamespace(setting=settings.get, db=Rows({"pg_ls_waldir": [(0, 0)]}))
        return [f"{found.about}: {found.message}" for found in disk.run(site)]  # type: ignore[arg-type]

    assert warned("0") == warned("") == []
    [message] = warned("86400")
    assert message.startswith("idle_replication_slot_timeout: idle_replication_slot_timeout is set: a connector that")


def applied(error: psycopg.Error, triggers: list[tuple[str, str]]) -> SourceError:
    """What `apply` says where the first statement of an action fails."""
    setup = Rows({"CREATE": error, "pg_event_trigger": triggers})
    create = statements("creating schema headwater", psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.SQL("h")))
    with pytest.raises(SourceError) as failed:
        run_all(SimpleNamespace(setup=setup), [Action("schema", "h", "create", run=create)], lambda _: None)  # type: ignore[arg-type]
    return failed.value


@pytest.mark.parametrize("kind", [psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction])
def test_an_event_trigger_that_does_not_find_its_table_is_named(kind: type[psycopg.Error]) -> None:
    """`relation "ddl_log" does not exist` blamed nothing of the user's."""
    error = kind('relation "ddl_log" does not exist')
    fix = applied(error, [("log_ddl", "public.log_ddl()")]).fix
    assert fix.startswith("if that is what event trigger log_ddl uses: ALTER FUNCTION public.log_ddl() SET search_path")
    assert applied(error, []).fix.startswith("remove the cause")
    other = applied(psycopg.errors.DuplicateSchema("exists"), [("log_ddl", "public.log_ddl()")])
    assert other.fix.startswith("remove the cause")


def test_tables_whose_changes_are_not_in_the_log_are_refused() -> None:
    """They were snapshotted, and then no change ever came, with `status` well."""

    def said(*, captured: bool = False, **about: object) -> list[tuple[Level, str]]:
        return [(found.level, found.message) for found in kind_findings(fact(**about), 170000, captured=captured)]

    assert said() == said(methods={}) == []
    [(level, message)] = said(distributed=("s.t",))
    assert level is Level.ERROR and message.startswith("changes of s.t are not in this server's log: Citus keeps")
    [(level, message)] = said(distributed=("s.t",), citus_sends=True)
    assert level is Level.WARNING, "with all shards on the coordinator it streams"
    assert "for the shards that it has itself" in message
    [(level, message)] = said(kind="p", methods={"s.t2": "columnar", "s.t1": "columnar"})
    assert (level, message) == (Level.ERROR, "changes of s.t1, s.t2 are not in the log (columnar)")
    [(level, message)] = said(captured=True, methods={"s.t": "columnar"})
    assert level is Level.ERROR, "no change of it has ever come"
    [(level, message)] = said(methods={"s.t": "orioledb"})
    assert level is Level.WARNING, "it may well be decoded"
    assert "whether changes of s.t are in the log is up to the access method orioledb" in message


def test_old_partitions_that_became_columnar_do_not_stop_what_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows came while they were heap; `plan` and `apply` were refused for all tables."""
    made, methods = pipeline(), {"public.flights_2020": "columnar"}
    monkeypatch.setattr(tables, "read_captured", lambda *_: captured)
    db = Rows({"relkind": [("public.flights", "p")]})
    db.info = SimpleNamespace(server_version=170000)  # type: ignore[attr-defined]
    facts = {"public.flights": fact(name="public.flights", kind="p", methods=methods)}
    site: Any = SimpleNamespace(pipeline=made, names=None, db=db, setup_or_db=db, facts=facts, anew=False)
    captured = {"public.flights": None}
    [found] = tables.run(site)
    assert found.level is Level.WARNING and "public.flights_2020 are not in the log (columnar)" in found.message
    assert found.fix.startswith("write to them no more") and "resnapshot FILE public.flights" in found.fix
    captured = {}
    [found] = tables.run(site)
    assert found.level is Level.ERROR, "the snapshot would read them, and no change would ever come"


@pytest.mark.parametrize("anew", [False, True])
def test_what_is_only_told_of_captured_tables_is_refused_before_they_are_captured_anew(
    monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """`recapture` removed all, and `apply` refused the file then."""
    opens = Column("opens", "time with time zone", "timetz")
    captured = {"public.flights": None, "public.shift": None}
    db = Rows({"relkind": [(name, "p") for name in captured]})
    db.info = SimpleNamespace(server_version=170000)  # type: ignore[attr-defined]
    for check in (tables, primary_keys):
        monkeypatch.setattr(check, "read_captured", lambda *_: captured)
    monkeypatch.setattr(toast, "CHECK", replace(toast.CHECK, run=lambda _: []))
    facts = {name: fact(name=name, kind="p") for name in captured}
    facts["public.flights"] = replace(facts["public.flights"], methods={"public.flights_2020": "columnar"})
    keys = {
        "public.flights": Table("public", "flights", (Column("id", "integer", "int4"),), ("id",)),
        "public.shift": Table("public", "shift", (opens,), ("opens",)),
    }
    monkeypatch.setattr(Site, "facts", facts)
    monkeypatch.setattr(Site, "catalogue", Catalogue(keys))
    servers: Any = SimpleNamespace(pipeline=pipeline(), source=db, setup=db, kafka=None, connect=None)
    with (
        pytest.raises(SourceError, match=r"flights_2020 are not in the log(.|\n)*timetz opens")
        if anew
        else nullcontext()
    ):
        refuse_unfit(servers, anew=anew)


def test_citus_is_asked_where_it_is_installed() -> None:
    row = ("s.t", "p", "p", "d", "o", False, 1.0, True, True, None, False, True, ["g"], False, 1)
    rows = [(*row, ["s.t1"], [], [], ["id", "g"], ["s.u"], ["s.f"], ["s.m"], {"s.t1": "columnar"})]
    answers = {"pg_dist_partition')": [(True, True)], "pg_dist_partition": [("s.t", ["s.t1", "s.t"])]}
    answers["jsonb_object_agg"] = rows
    setup = Rows(answers)
    known = read_facts(setup, ["s.t"])["s.t"]  # type: ignore[arg-type]
    assert (known.generated, known.partitions, known.columns) == (("g",), ("s.t1",), ("id", "g"))
    assert (known.unlogged, known.foreign, known.misplaced) == (("s.u",), ("s.f",), ("s.m",))
    assert known.methods == {"s.t1": "columnar"} and known.distributed == ("s.t", "s.t1")
    assert known.citus_sends and "'citus.enable_change_data_capture', true)" in setup.asked[1]
    answers["pg_dist_partition')"] = [(False, False)]
    setup.asked.clear()
    assert read_facts(setup, ["s.t"])["s.t"].distributed == () and len(setup.asked) == 2  # type: ignore[arg-type]
