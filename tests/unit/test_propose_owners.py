"""Whose tables `init` proposes, and which role it lets act for them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

from connectors.preflight import rights
from connectors.preflight.model import Site
from connectors.tables.facts import TableFacts
from connectors.tables.foreign_keys import ForeignKey
from operations.propose.proposal import draft
from operations.propose.roles import MAX_LINES, propose_roles, who_sets_up
from operations.propose.writing import Draft, written
from tests.unit.test_propose import (
    HEADWATER,
    KEYS,
    OWNER,
    ROOT,
    SHOP,
    fact,
    looked,
    roles,
    survey,
    table,
    tables,
)
from tests.unit.test_propose_odd import checked


def beside(named: bool = False, acting: frozenset[tuple[str, str]] = frozenset()) -> Draft:
    """A database in which a service keeps tables of its own, as Supabase's."""
    service = table("people", "id", "email", "colour", schema="auth")
    facts = {name: fact(name, "own") for name in SHOP} | {service.qualified: fact(service.qualified, "auth_admin")}
    keys = (*KEYS, ForeignKey("public.users", "auth.people", ("id",), ("id",)))
    found = looked(tables=SHOP | tables(service), facts=facts, foreign_keys=keys)
    return draft(replace(found, named=named, acting=acting), name="x", sinks=("elasticsearch",))


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
    made = draft(at, name="x", sinks=("redis",))
    [told] = [one for one in made.left_out if "belongs to b" in one.why]
    assert made.roles.setup_user == "admin" and 'GRANT "b" TO "admin"' in told.fix
    assert "# may do what the tables' owners may: apply" in written(made)
    assert "after the SQL above: apply" in written(draft(replace(at, named=True), name="x", sinks=("redis",)))
    assert "# owns the tables: apply" in written(draft(looked(), name="x", sinks=("redis",)))


def test_nobody_is_made_a_superuser_for_the_sake_of_a_table() -> None:
    """Who is granted `postgres` is one."""
    found = survey(OWNER, HEADWATER, ROOT, user="own", owner="own")
    facts = dict(found.facts) | {name: fact(name, "root") for name in ("public.users", "public.groups")}
    at = replace(looked(), found=replace(found, facts=facts), setup="own")
    [users, _] = [one for one in draft(at, name="x", sinks=("redis",)).left_out if "belongs to root" in one.why]
    assert users.fix.startswith('ALTER TABLE "public"."users" OWNER TO "own", or')
    first = draft(replace(at, named=True), name="x", sinks=("redis",)).roles.first
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
