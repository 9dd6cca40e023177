"""What is told of changed tables: by `plan` before anything is done, to `run` by `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg import Error

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, SourceError
from cdc.pipeline import Pipeline
from cdc.shapes import Shape, column_changes
from connectors.postgres import Connection, connect
from connectors.shapes import read_shapes
from operations.generations.outdated import cost, estimated_rows
from operations.kept_shapes import (
    Evolution,
    allow,
    has_evolution,
    known_shapes,
    read_evolution,
    remember_shapes,
    write_evolution,
)
from operations.schema.act import Case, cases, changed_tables
from operations.schema.decide import Verdict, together
from operations.state_folder import numbered_state_dir


def let_through(pipeline: Pipeline) -> None:
    """`headwater apply` was run: what waits for it goes on; and the tables of a new pipeline are what they are now.

    Raises:
        SourceError: Postgres does not answer (SourceUnavailable: transient).
    """
    with connect(pipeline.source) as connection:
        _, shapes = read_shapes(connection, pipeline.source.tables, absent=[])
    numbered_state_dir(pipeline)
    remember_shapes(pipeline, shapes)
    allow(pipeline, shapes)
    for sink in pipeline.sinks:
        if not has_evolution(pipeline, sink):
            write_evolution(pipeline, sink, Evolution(acted=shapes))


def migrations(pipeline: Pipeline, migration: Path | None = None) -> list[dict[str, Any]]:
    """What changed tables mean for each view and sink: a part of `plan --json`. Changes nothing.

    Args:
        pipeline: the loaded file.
        migration: SQL that is tried out as the role that owns the tables, and rolled back.

    Returns:
        for each table: ``table``, ``changes``, ``read`` (rows that will be read again), ``views`` (each with ``sink``,
        ``generation``, ``view``, ``verdict``, ``why``, ``documents`` to be written), and ``rebuilt``: what a new
        generation of each sink costs that needs one (``operations.generations.outdated.cost``).

    Raises:
        SourceError: Postgres refuses the migration, or does not answer.
    """
    known = {sink: read_evolution(pipeline, sink) for sink in pipeline.sinks}
    if not any(one.acted for one in known.values()):
        return []
    if migration is not None and not migration.is_file():
        raise ConfigError(f"there is no file {migration}", means="nothing was tried", fix="name a file with SQL")
    with connect(pipeline.source, setup=migration is not None) as connection:
        catalogue, shapes = (
            read_shapes(connection, pipeline.source.tables, absent=[])
            if migration is None
            else _tried(connection, pipeline, migration)
        )
        told = known_shapes(pipeline).with_newer(shapes)[0].told_to(catalogue)
        changed: dict[str, tuple[Shape, Shape]] = {}
        found: list[Case] = []
        for sink, one in known.items():
            mine = changed_tables(one, shapes, ())
            found += [case for _, case in cases(pipeline, sink, told, mine)]
            changed |= mine
        return [_told(pipeline, connection, table, *pair, found) for table, pair in sorted(changed.items())]


class _Enough(Exception):
    """Rolls back."""


def _tried(connection: Connection, pipeline: Pipeline, migration: Path) -> tuple[Catalogue, Mapping[str, Shape]]:
    """The tables as a migration leaves them, which is rolled back."""
    found: tuple[Catalogue, Mapping[str, Shape]] | None = None
    try:
        with connection.transaction():
            connection.execute("SET LOCAL search_path = public")
            connection.execute(migration.read_bytes(), prepare=False)
            connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
            found = read_shapes(connection, pipeline.source.tables, absent=[])
            raise _Enough
    except _Enough:
        assert found is not None
        return found
    except Error as error:
        raise SourceError(
            f"Postgres refuses {migration}: {str(error).strip()}",
            means="it was tried out in a transaction that was rolled back; nothing was changed",
            fix="correct it; what can't run inside of a transaction can't be tried out",
        ) from error


def _told(
    pipeline: Pipeline, connection: Connection, table: str, known: Shape, now: Shape, found: list[Case]
) -> dict[str, Any]:
    mine = [case for case in found if case.table == table]
    read = together([case.decision for case in mine])
    rows = estimated_rows(connection, table)
    return {
        "table": table,
        "changes": [change.words for change in column_changes(known, now)],
        "read": None if read is None else rows if read == "" else 0,
        "views": [
            {
                "sink": case.sink,
                "generation": case.generation,
                "view": case.view,
                "verdict": case.decision.verdict.words,
                "why": list(case.decision.why),
                "documents": rows if case.decision.verdict >= Verdict.READ_AGAIN else 0,
            }
            for case in mine
        ],
        "rebuilt": {
            sink: cost(pipeline, sink)
            for sink in dict.fromkeys(
                case.sink for case in mine if case.living and case.decision.verdict is Verdict.NEW_GENERATION
            )
        },
    }
