"""``headwater init``: from a database to a pipeline file that ``headwater check`` takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from cdc.catalogue import Table
from cdc.errors import ConfigError, NoPassword, SourceError, SourceRefused
from cdc.pipeline import Source
from cdc.pipeline.checks import ICEBERG_COLUMNS
from cdc.pipeline.fields import NAMESPACE, PATTERNS, PIPELINE_NAME
from connectors.postgres import connect
from connectors.refused_login import of_tls
from connectors.survey import LeftOut, Survey, few_enough, survey
from operations.propose.held import filled, held
from operations.propose.hidden import hidden_columns, is_secret
from operations.propose.names import snake
from operations.propose.roles import not_ours, propose_roles, read_acting, who_sets_up
from operations.propose.views import propose_views
from operations.propose.writing import PORT_BASE, SEARCH, Draft, unique, variables

_NAME_LENGTH = 40


@dataclass(frozen=True)
class Looked:
    """A database that was looked at.

    Attributes:
        source: where it is.
        found: what is in it; where no table was named, without those of others.
        trusted: who is let in without a password.
        setup: the role that sets up, chosen among all tables.
        acting: (role, owner of some of the tables as whom that role may act).
    """

    source: Source
    found: Survey
    trusted: frozenset[str]
    setup: str
    acting: frozenset[tuple[str, str]] = frozenset()


def look(source: Source, patterns: Sequence[str]) -> Looked:
    """Look at a database; nothing is changed, and no row is read.

    Args:
        source: of ``address.read_address``.
        patterns: see ``connectors.survey.survey``.

    Raises:
        ConfigError: a pattern matches nothing, or nothing can be captured (terminal).
        NoPassword: the server wants one (terminal).
        SourceUnavailable, SourceError: the server does not answer, or refuses.
    """
    try:
        connection = connect(source)
    except SourceError as error:
        if error.transient and not isinstance(error, SourceRefused):
            fix = "correct host and port of the address, or start the server (`headwater up` for the local one)"
            raise type(error)(error.what, fix=fix) from error
        if "no password" in error.what:
            raise NoPassword(
                error.what, fix="set PGPASSWORD, or run this in a terminal, where it is asked for"
            ) from error
        words = "user, password and database"
        if isinstance(error.__cause__, psycopg.Error) and of_tls(error.__cause__):
            words = "sslmode and sslrootcert (a PEM file with the authority that signed the server's certificate)"
        kind = SourceRefused if isinstance(error, SourceRefused) else SourceError
        raise kind(error.what, fix=f"correct {words} of the address") from error
    with connection:
        found = survey(connection, patterns, source.schema_)
        trusted = frozenset() if connection.pgconn.used_password else frozenset((found.user,))
        acting = read_acting(connection, found)
        setup = who_sets_up(found, acting)
        found = found if patterns else not_ours(found, setup, acting)
        few_enough(found.tables)
        return Looked(source, found, trusted, setup, acting)


def draft(
    looked: Looked, *, name: str | None, sinks: Sequence[str], user: str | None = None, port_base: int = PORT_BASE
) -> Draft:
    """Propose a pipeline.

    Args:
        looked: the database.
        name: the pipeline's; None for the database's.
        sinks: kinds of sinks.
        user: the role that shall replicate; None to choose.
        port_base: where the ports of the local servers begin.

    Raises:
        ConfigError: the name is none, or nothing may be shown in any of the sinks (terminal).
    """
    source = looked.source
    name = proposed_name(source) if name is None else name
    if not re.fullmatch(PIPELINE_NAME, name):
        raise ConfigError(f"--name {name}: expected {PATTERNS[PIPELINE_NAME]}")
    found = looked.found
    documents = [kind for kind in sinks if kind != "iceberg"]
    proposal = propose_views(
        found.tables,
        found.foreign_keys,
        found.sizes,
        joins=bool(documents),
        search=any(kind in SEARCH for kind in documents),
        written=found.written,
    )
    if not documents:
        proposal.views.clear()
    warehouse, unkept = warehouse_tables(found.tables) if "iceberg" in sinks else (None, [])
    hidden = hidden_columns(found.tables) if documents else []
    left_out = unique([*found.left_out, *hidden, *proposal.left_out, *unkept])
    roles = propose_roles(found, source.database, looked.setup, looked.acting, user)
    made = Draft(
        name,
        source,
        found,
        roles,
        looked.trusted,
        proposal,
        tuple(sinks),
        warehouse,
        left_out,
        unique(found.notes),
        port_base,
    )
    return held(filled(made))


def proposed_name(source: Source) -> str:
    """A pipeline's name for a database."""
    return snake(source.database)[:_NAME_LENGTH]


def save(path: Path, text: str, *, force: bool) -> None:
    """Write the file; one that is there already is somebody's work.

    Raises:
        ConfigError: there is one, and ``force`` is false (terminal; nothing was written).
        OSError: as the system says.
    """
    refuse_existing(path, force=force)
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to replace a file.

    Raises:
        ConfigError: as ``save``.
    """
    if path.exists() and not force:
        raise ConfigError(
            f"{path} is there already", means="nothing was written", fix="name another file with --out, or say --force"
        )


def report(made: Draft, file: str) -> dict[str, Any]:
    """What was found and proposed; the shape of ``init --json``.

    Args:
        made: the proposal.
        file: where it was written; "-" for standard output.
    """
    views = [
        {
            "view": view.name,
            "root": view.table.qualified,
            "refs": [join.name for join in view.joins if join.kind == "refs"],
            "children": [name for join in view.joins if join.kind == "children" for name in join.shown],
            "aggregates": [join.name for join in view.joins if join.kind == "aggregates"],
            "hidden": list(view.hidden),
        }
        for view in made.proposal.views
    ]
    rows = made.survey.sizes.rows
    return {
        "file": file,
        "name": made.name,
        "database": made.source.database,
        "user": made.roles.user,
        "setup_user": made.roles.setup_user,
        "tables": [{"table": name, "rows": rows.get(name, 0)} for name in made.survey.tables],
        "views": views,
        "sinks": list(made.sinks),
        "left_out": [{"name": one.name, "why": one.why, "fix": one.fix} for one in made.left_out],
        "notes": [{"name": one.name, "why": one.why, "fix": one.fix} for one in made.notes],
        "first": list(made.roles.first),
        "variables": variables(made),
        "wal_level": made.survey.wal_level,
    }


def warehouse_tables(tables: Mapping[str, Table]) -> tuple[list[str] | None, list[LeftOut]]:
    """Tables that an Iceberg sink can keep whole, None for all of them; and why not the others."""
    taken: dict[str, str] = {}
    left_out = []
    for name, table in tables.items():
        why = _not_in_warehouse(table)
        twin = taken.get(table.name.lower())
        if why is None and twin is not None:
            why = f"another schema's table has that name: {twin}"
        if why is not None:
            left_out.append(LeftOut(name, f"not in the warehouse, {why}", "write a view for it"))
        else:
            taken[table.name.lower()] = name
    return (list(taken.values()) if left_out else None), left_out


def _not_in_warehouse(table: Table) -> str | None:
    names = [column.name for column in table.columns]
    if secret := [column.name for column in table.columns if is_secret(column)]:
        return f"where it would be whole: {', '.join(secret)} look{'s' if len(secret) == 1 else ''} like a secret"
    if len({name.lower() for name in names}) < len(names):
        return "where two of its columns would have one name"
    if own := sorted(ICEBERG_COLUMNS.intersection(names)):
        return f"which has a column {own[0]} of its own"
    if not re.fullmatch(NAMESPACE, table.name):
        return "whose tables are called with letters, digits and '_' alone"
    return None
