"""Tables for which a file is to be proposed."""

from __future__ import annotations

from dataclasses import replace

from pydantic import SecretStr

from cdc.catalogue import Column, Table
from cdc.pipeline import Source
from connectors.survey import Role, Survey
from connectors.tables.facts import TableFacts
from connectors.tables.foreign_keys import ForeignKey, Sizes
from operations.propose.proposal import Looked
from operations.propose.proposed import Proposal, Proposed
from operations.propose.roles import Acting, Roles, propose_roles, who_sets_up


def table(name: str, *columns: str, key: int = 1, kinds: dict[str, str] | None = None, schema: str = "public") -> Table:
    kinds = kinds or {}
    made = tuple(Column(c, kinds.get(c, "int4"), kinds.get(c, "int4"), ordinal=n) for n, c in enumerate(columns, 1))
    return Table(schema, name, made, columns[:key])


def tables(*found: Table) -> dict[str, Table]:
    return {one.qualified: one for one in found}


def points(source: str, columns: str, target: str, keys: str) -> ForeignKey:
    return ForeignKey(f"public.{source}", f"public.{target}", tuple(columns.split()), tuple(keys.split()))


SHOP = tables(
    table("users", "id", "name", "password_hash", "manager_id", kinds={"name": "text", "password_hash": "text"}),
    table("orders", "id", "user_id", "status_code", "created_at", kinds={"created_at": "timestamptz"}),
    table("order_items", "order_id", "line", "pieces", key=2),
    table("statuses", "code", "label"),
    table("groups", "id", "title", "colour"),
    table("user_groups", "user_id", "group_id", key=2),
)
KEYS = [
    points("users", "manager_id", "users", "id"),
    points("orders", "user_id", "users", "id"),
    points("orders", "status_code", "statuses", "code"),
    points("order_items", "order_id", "orders", "id"),
    points("user_groups", "user_id", "users", "id"),
    points("user_groups", "group_id", "groups", "id"),
]
NOBODY_KNOWS = Sizes({}, {})


def views(proposal: Proposal) -> dict[str, Proposed]:
    return {view.name: view for view in proposal.views}


def joins(view: Proposed) -> dict[str, str]:
    return {join.name: join.kind for join in view.joins}


def fact(name: str, owner: str) -> TableFacts:
    return TableFacts(name, "r", "p", "d", owner, False, 0.0, True, False, None, False, False, (), False, 1, (), ())


def survey(*roles: Role, user: str, owner: str) -> Survey:
    facts = {name: fact(name, owner) for name in SHOP}
    found = {role.name: role for role in roles}
    return Survey(SHOP, facts, (), (), tuple(KEYS), NOBODY_KNOWS, {}, found, user, "logical")


ROOT = Role("root", login=True, superuser=True, replicates=True, creates=True)
OWNER = Role("own", login=True, superuser=False, replicates=False, creates=True)
HEADWATER = Role("headwater", login=True, superuser=False, replicates=True, creates=False)


def roles(found: Survey, wanted: str | None = None, acting: Acting = ()) -> Roles:
    return propose_roles(found, "shop", who_sets_up(found, acting), acting, wanted)


def looked(**changed: object) -> Looked:
    source = Source(database="shop", user="own", password=SecretStr("tell-nobody"), tables=("public.any",))
    found = replace(survey(OWNER, HEADWATER, user="own", owner="own"), **changed)  # type: ignore[arg-type]
    return Looked(source, found, frozenset(), who_sets_up(found, ()))
