"""FORCE ROW LEVEL SECURITY, under which the owner of a table sees what policies show, and no more."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cdc.catalogue import Column, Table
from connectors.database.truncate import function_body
from connectors.names import Names
from connectors.preflight import Finding, Level, rights
from connectors.preflight.gathered import gathered
from connectors.snapshots.absent_keys import KeyCheck
from connectors.tables.row_security import HIDES, HIDES_FROM_ME
from tests.support.connector_cases import catalogue, fact, pipeline

KEYED = Table("public", "t", (Column("k", "integer", "int4"),), ("k",))


class Found(list[Any]):
    """Rows."""

    def fetchone(self) -> Any:
        return self[0] if self else None

    def fetchall(self) -> list[Any]:
        return self


class Session:
    """Keeps what is asked, and in which transaction."""

    adapters, connection = psycopg.adapters, None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def transaction(self) -> Any:
        self.asked.append("BEGIN")
        return nullcontext()

    def execute(self, query: Any, _: Any = None) -> Any:
        self.asked.append(query.as_string() if isinstance(query, sql.Composable) else query)
        return Found()


@pytest.mark.parametrize("look", ["absent", "any_row"])
def test_rows_are_looked_for_where_all_policies_show_all(look: str) -> None:
    """Postgres that is set to refuse what policies may hide refuses that as well, and such a table was never swept."""
    check = object.__new__(KeyCheck)
    session: Any = Session()
    check.connection, check.table, check.columns = session, KEYED, list(KEYED.columns)
    check.query = sql.SQL("SELECT absent").format()
    if look == "absent":
        assert check.absent([b'{"k":1}']) == []
    else:
        assert not check.any_row()
    begin, lock, setting, *_, asked = session.asked
    assert (begin, lock) == ("BEGIN", 'LOCK TABLE ONLY "public"."t" IN ACCESS SHARE MODE'), "a policy may change"
    assert "row_security_active(c.oid) AND NOT (c.relrowsecurity" in setting and "current_user::text" in setting
    assert "row_security = off" not in str(session.asked) and asked.startswith("SELECT")


def test_a_truncate_is_done_where_all_policies_show_all() -> None:
    body = function_body(Names.of(pipeline()), "propagate")
    shown = body.index(f"c.oid = ANY(doomed) AND {HIDES_FROM_ME}")
    assert shown < body.index("PERFORM set_config('row_security', 'on', true)") < body.index("DELETE FROM")
    assert "%(" not in body and "{hides}" not in body


def test_it_means_the_same_whatever_a_session_makes_of_backslashes() -> None:
    """The function is called by the application's sessions."""
    assert "\\" not in HIDES


@pytest.mark.parametrize("policy", ["refuse", "propagate"])
def test_check_asks_for_the_owner_too(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """It asked for source.user alone, and was green."""
    names, roles = [f"public.t{n}" for n in range(9)], []

    def hidden(_: Any, tables: Any, role: str, *, deleting: bool = False) -> list[str]:
        roles.append(role)
        return [] if deleting else sorted(tables)

    monkeypatch.setattr(rights, "hidden_tables", hidden)
    for others in ("missing_rights", "_setup"):
        monkeypatch.setattr(rights, others, lambda *_: [])
    monkeypatch.setattr(rights, "foreign", lambda *_: None)
    facts = {name: fact(name=name, owner="own") for name in names}

    def run(**source: str) -> list[Finding]:
        loaded = pipeline(source=source, policy={"truncate": policy})
        known = {"catalogue": catalogue(), "names": Names.of(loaded), "facts": facts, "db": None, "setup": None}
        return list(rights.run(SimpleNamespace(pipeline=loaded, **known)))  # type: ignore[arg-type]

    found = run(setup_user="own", setup_password="x")
    assert [one.about for one in found] == names and {one.level for one in found} == {Level.WARNING}
    assert ("a TRUNCATE fails" in found[0].message) == (policy == "propagate")
    assert f"FOR {'ALL' if policy == 'propagate' else 'SELECT'} TO … USING (true)" in found[0].fix and set(roles) == {
        "own"
    }
    [told] = gathered(found)
    assert told.message.startswith("row-level security hides rows of 9 tables (public.t0, ")
    assert run() == [], "of source.user another check says so"


@pytest.mark.parametrize("setup_user", ["own", None])
def test_check_asks_whether_a_truncate_would_be_kept_from_deleting(
    monkeypatch: pytest.MonkeyPatch, setup_user: str | None
) -> None:
    """All rows were shown by a policy FOR SELECT, there was none FOR DELETE: green, and each TRUNCATE failed."""
    for others in ("missing_rights", "_setup"):
        monkeypatch.setattr(rights, others, lambda *_: [])
    monkeypatch.setattr(rights, "foreign", lambda *_: None)
    asked: list[Any] = []

    class Catalogue:
        """Of which policies for SELECT show all, and none lets anything be deleted."""

        def execute(self, query: str, values: Any) -> Any:
            asked.append(values)
            return Found([("public.t",)] if "p.polcmd IN ('d', '*')" in query and values["tables"] else [])

    def run(truncate: str) -> list[Finding]:
        loaded = pipeline(source={"setup_user": setup_user} if setup_user else {}, policy={"truncate": truncate})
        known = {"catalogue": catalogue(), "names": Names.of(loaded), "db": None, "setup": Catalogue()}
        facts = {"public.t": fact(name="public.t")}
        return list(rights.run(SimpleNamespace(pipeline=loaded, facts=facts, **known)))  # type: ignore[arg-type]

    role = setup_user or "headwater"
    assert run("refuse") == []
    [found] = run("propagate")
    assert found.level is Level.WARNING and "FOR ALL TO … USING (true)" in found.fix
    assert found.message == f"row-level security keeps {role} from deleting rows of public.t: a TRUNCATE fails"
    assert {values["reader"] for values in asked} == {role}
