"""What is told of a Postgres that others run, and set up as they like."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from cdc.errors import SourceError
from connectors.actions import Action, run_all, statements
from connectors.preflight import disk, role
from connectors.preflight.model import Level
from tests.support.connector_cases import pipeline


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
