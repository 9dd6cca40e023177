"""Whose tables `init` proposes, and which role it lets act for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest

from cdc.errors import SourceError
from connectors.preflight import rights
from connectors.preflight.model import Site
from connectors.survey import LeftOut, Survey
from connectors.tables.facts import TableFacts
from connectors.tables.foreign_keys import ForeignKey
from console.cli.init import _tell
from operations.propose import proposal
from operations.propose.proposal import Looked, draft, report
from operations.propose.roles import MAX_LINES, not_ours, propose_roles, who_sets_up
from operations.propose.telling import told
from operations.propose.writing import Draft, written
from tests.support.proposed_tables import HEADWATER, KEYS, OWNER, ROOT, SHOP, fact, looked, roles, survey, table, tables
from tests.unit.operations.test_propose_odd import checked


def at_once(found: Looked, *, named: bool) -> Draft:
    """A draft of what `look` makes of a database."""
    kept = found.found if named else not_ours(found.found, found.setup, found.acting)
    return draft(replace(found, found=kept), name="x", sinks=("redis",))


def beside(named: bool = False, acting: frozenset[tuple[str, str]] = frozenset()) -> Draft:
    """A database in which a service keeps tables of its own, as Supabase's."""
    service = table("people", "id", "email", "colour", schema="auth")
    facts = {name: fact(name, "own") for name in SHOP} | {service.qualified: fact(service.qualified, "auth_admin")}
    keys = (*KEYS, ForeignKey("public.users", "auth.people", ("id",), ("id",)))
    found = looked(tables=SHOP | tables(service), facts=facts, foreign_keys=keys)
    return at_once(replace(found, acting=acting), named=named)


def test_tables_of_others_that_nobody_has_named_are_left_out_with_the_reason() -> None:
    made = beside()
    assert "auth.people" not in made.survey.tables and not made.roles.first
    [told] = [one for one in made.left_out if one.name == "auth.people"]
    assert "belongs to auth_admin" in told.why and 'GRANT "auth_admin" TO "own"' in told.fix
    assert "auth.people" not in checked(made).source.tables


def test_tables_of_others_that_somebody_has_named_ask_for_a_grant() -> None:
    made = beside(named=True)
    assert "auth.people" in made.survey.tables and made.roles.first == ('GRANT "auth_admin" TO "own";',)
    assert '#   GRANT "auth_admin" TO "own";' in written(made)


def test_a_member_of_the_other_owner_needs_no_grant() -> None:
    made = beside(acting=frozenset((("own", "auth_admin"),)))
    assert "auth.people" in made.survey.tables and not made.roles.first


ACTS_AS_ALL = frozenset({("postgres", "own"), ("postgres", "postgres"), ("own", "own")})


def owned(count: int, owner: str, schema: str = "public") -> dict[str, TableFacts]:
    names = [f"{schema}.{owner}_{n}" for n in range(count)]
    return {name: fact(name, owner) for name in names}


def test_who_may_act_for_the_most_tables_sets_up_and_who_asks_before_others() -> None:
    found = survey(OWNER, replace(OWNER, name="admin"), user="admin", owner="own")
    assert roles(found).setup_user == "own"
    assert roles(found, acting={("admin", "own")}).setup_user == "admin"
    assert roles(survey(ROOT, OWNER, user="root", owner="root")).first == ()
    two = replace(found, facts=owned(60, "own") | owned(40, "other"))
    assert who_sets_up(two, {("admin", "own")}) == "admin"
    assert who_sets_up(two, {("other", "own"), ("admin", "own")}) == "other"


def test_who_asks_and_owns_few_tables_of_a_dump_gets_the_others_too() -> None:
    """It was restored by `postgres`: the file had three of a hundred tables, without an error."""
    dump = replace(ROOT, name="postgres", login=True)
    found = replace(
        survey(OWNER, HEADWATER, dump, user="own", owner="own"), facts=owned(3, "own") | owned(97, "postgres")
    )
    found = replace(found, tables=tables(*(table(name.partition(".")[2], "id", "a", "b") for name in found.facts)))
    assert who_sets_up(found, ACTS_AS_ALL) == "postgres"
    made = draft(replace(looked(), found=found, setup="postgres", acting=ACTS_AS_ALL), name="x", sinks=("redis",))
    assert len(checked(made).source.tables) == 100 and made.roles.setup_user == "postgres"
    assert 'postgres"' not in "".join(made.roles.first) and not any("belongs" in one.why for one in made.left_out)
    # A table or two of its are no reason to make it the role of the pipeline.
    some = replace(found, facts=owned(99, "own") | owned(1, "postgres"))
    assert who_sets_up(some, ACTS_AS_ALL) == "own"


def test_a_service_with_more_tables_than_one_s_own_does_not_set_up() -> None:
    found = replace(survey(OWNER, user="own", owner="own"), facts=owned(5, "own") | owned(23, "auth_admin", "auth"))
    assert who_sets_up(found, ()) == "own"


def test_the_role_that_is_said_to_be_unable_is_that_of_the_file() -> None:
    """It was asked twice: over all tables, and over those that were left."""
    facts = {name: fact(name, "a" if number else "b") for number, name in enumerate(SHOP)}
    found = replace(survey(replace(OWNER, name="admin"), HEADWATER, user="admin", owner="a"), facts=facts)
    acting = frozenset({("admin", "a")})
    at = replace(looked(), found=found, setup=who_sets_up(found, acting), acting=acting)
    made = at_once(at, named=False)
    [told] = [one for one in made.left_out if "belongs to b" in one.why]
    assert made.roles.setup_user == "admin" and 'GRANT "b" TO "admin"' in told.fix
    assert "# may do what the tables' owners may: apply" in written(made)
    assert "after the SQL above: apply" in written(at_once(at, named=True))
    assert "# owns the tables: apply" in written(draft(looked(), name="x", sinks=("redis",)))


def test_nobody_is_made_a_superuser_for_the_sake_of_a_table() -> None:
    """Who is granted `postgres` is one."""
    found = survey(OWNER, HEADWATER, ROOT, user="own", owner="own")
    facts = dict(found.facts) | {name: fact(name, "root") for name in ("public.users", "public.groups")}
    at = replace(looked(), found=replace(found, facts=facts), setup="own")
    [users, _] = [one for one in at_once(at, named=False).left_out if "belongs to root" in one.why]
    assert users.fix.startswith('ALTER TABLE "public"."users" OWNER TO "own", or')
    first = at_once(at, named=True).roles.first
    assert first == tuple(f'ALTER TABLE "public"."{name}" OWNER TO "own";' for name in ("users", "groups"))
    many = replace(found, facts=owned(30, "root") | owned(31, "own"))
    first = propose_roles(many, "shop", "own").first
    assert len(first) == MAX_LINES + 1 and first[-1] == '-- and so the 10 other tables of "root"'


def test_check_makes_nobody_a_superuser_either() -> None:
    setup = MagicMock()
    setup.execute.side_effect = [MagicMock(fetchone=lambda: (True,)), [("root", True), ("other", False)]]
    facts = {
        name: fact(name, owner) for name, owner in (("public.a", "root"), ("public.b", "other"), ("public.c", "own"))
    }
    site = cast(Site, SimpleNamespace(facts=facts))
    fixes = {one.about: one.fix for one in rights._setup(site, setup, "own")}
    assert fixes == {
        "public.a": 'set source.setup_user to the owner, or ALTER TABLE "public"."a" OWNER TO "own"',
        "public.b": 'set source.setup_user to the owner, or GRANT "other" TO "own"',
    }


def service(count: int) -> Survey:
    facts = {name: fact(name, "own") for name in SHOP} | owned(count, "auth_admin", "auth")
    more = tables(*(table(f"auth_admin_{n}", "id", "a", "b", schema="auth") for n in range(count)))
    return replace(survey(OWNER, HEADWATER, user="own", owner="own"), facts=facts, tables=SHOP | more)


def surveyed(monkeypatch: pytest.MonkeyPatch, found: Survey) -> None:
    connection = MagicMock(pgconn=SimpleNamespace(used_password=True))
    monkeypatch.setattr(proposal, "connect", lambda source: connection)
    monkeypatch.setattr(proposal, "survey", lambda *given: found)
    monkeypatch.setattr(proposal, "read_acting", lambda connection, found: frozenset())


def test_the_tables_that_a_terminal_lists_are_those_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """All were listed, "all" was the answer, and some were not in the file."""
    surveyed(monkeypatch, service(3))
    at = proposal.look(looked().source, ())
    assert set(at.found.tables) == set(SHOP)
    assert set(draft(at, name="x", sinks=("redis",)).survey.tables) == set(SHOP)
    assert len(proposal.look(looked().source, ["*"]).found.tables) == len(SHOP) + 3


def test_tables_that_are_left_out_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    surveyed(monkeypatch, service(3))
    monkeypatch.setattr("connectors.survey.MAX_TABLES", len(SHOP))
    assert proposal.look(looked().source, ()).found.tables
    with pytest.raises(SourceError, match="9 tables can be captured; a pipeline file takes 6"):
        proposal.look(looked().source, ["*"])


def test_whole_tables_are_told_before_columns_and_joins_and_an_owner_s_in_one_line() -> None:
    names = ("public.orders.period", "orders (x) of public.users", "public.z", "auth.a", "auth.b", "view x", "other.a")
    owners = {"auth.a": "auth_admin", "auth.b": "auth_admin", "other.a": "other"}
    lines = told([LeftOut(name, "why", "fix", owners.get(name, "")) for name in names], SHOP)
    assert [one.name for one in lines] == ["auth_admin", "other.a", "public.z", "view x", *names[:2]]
    assert (lines[0].why, lines[0].fix) == ("2 tables (auth.a, auth.b), of each: why", "fix")
    [line] = told([LeftOut(name, "why", f"ALTER TABLE {name} …", "root") for name in ("public.a", "public.b")], SHOP)
    assert line.fix == "ALTER TABLE public.a …; and so the others"


def test_what_is_more_than_the_lines_of_a_file_is_said_to_be_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = at_once(replace(looked(), found=service(80)), named=False)
    assert "auth_admin: 80 tables (auth.auth_admin_0, " in written(made) and " more: " not in written(made)
    assert len([one for one in report(made, "-")["left_out"] if one["name"].startswith("auth.")]) == 80
    made = replace(made, left_out=[LeftOut(f"public.t{n}", "no key") for n in range(100)])
    assert "# and 40 more: `headwater init --out - --json` has all" in written(made)
    _tell(made, Path("-"))
    assert "… and 70 more: `--out - --json` has all" in capsys.readouterr().err
