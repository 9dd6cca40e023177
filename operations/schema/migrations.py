"""What is told of changed tables: by `plan` before anything is done, to `run` by `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg import Error, errors

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, SourceError, SourceUnavailable
from cdc.pipeline import Pipeline
from cdc.shapes import Shape, column_changes
from connectors.postgres import Connection, connect
from connectors.tables.partitions import estimated_rows
from connectors.tables.shapes import read_shapes, read_shapes_inside
from operations.generations.outdated import cost
from operations.schema.act import changed_tables, told_of_names
from operations.schema.case import Case, cases
from operations.schema.changed import in_words
from operations.schema.decide import Verdict, together
from operations.schema.left_out import left_out
from operations.schema.statements import controls_transaction, statements, unframed
from operations.schema.stopped import stands_with
from operations.state.evolution import Evolution, allow, has_evolution, read_evolution, write_evolution
from operations.state.folder import numbered_state_dir
from operations.state.shapes import known_shapes, remember_shapes

ROLLED_BACK = "it was tried out in a transaction that was rolled back; nothing was changed"


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
        ``generation``, ``view``, ``verdict``, ``stands_with``, ``why``, ``asks`` of who writes the pipeline file,
        ``documents`` to be written), and ``rebuilt``: what a new generation of each sink costs that needs one
        (``operations.generations.outdated.cost``).

    Raises:
        SourceError: Postgres refuses the migration, or does not answer.
        ConfigError: the migration can't be read, or would end the transaction that it is tried in (terminal).
    """
    known = {sink: read_evolution(pipeline, sink) for sink in pipeline.sinks}
    if not any(one.acted for one in known.values()):
        return []
    with connect(pipeline.source, setup=migration is not None) as connection:
        catalogue, shapes = (
            read_shapes(connection, pipeline.source.tables, absent=[])
            if migration is None
            else _tried(connection, pipeline, migration)
        )
        told = known_shapes(pipeline).with_newer(shapes)[0].told_to(catalogue)
        shapes = told_of_names(shapes, told)
        changed: dict[str, tuple[Shape, Shape]] = {}
        found: list[Case] = []
        for sink, one in known.items():
            mine = changed_tables(one, shapes, ())
            found += [case for _, case in cases(pipeline, sink, told, mine)]
            changed |= mine
            for table, (was, left) in left_out(pipeline, sink, told, one, shapes, mine).items():
                found += [case for _, case in left]
                changed.setdefault(table, (was, shapes[table]))
        return [_told(pipeline, connection, table, *pair, found) for table, pair in sorted(changed.items())]


def _tried(connection: Connection, pipeline: Pipeline, migration: Path) -> tuple[Catalogue, Mapping[str, Shape]]:
    """The tables as a migration leaves them, which is rolled back."""
    parts = _statements(migration)
    line = 1
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SET LOCAL search_path = public")
            for at, statement in parts:
                line = at
                # Answers in binary are had by the extended protocol alone: the server takes one statement at a time,
                # so that nothing can end the transaction behind something that was not understood here.
                connection.execute(statement.encode(), prepare=False, binary=True)
            connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
            return read_shapes_inside(connection, pipeline.source.tables)
    except errors.ActiveSqlTransaction as error:
        raise SourceError(
            f"{migration}:{line}: can't be tried out: {str(error).strip()}",
            means=ROLLED_BACK,
            fix="leave this statement out of the file that is tried (CREATE INDEX CONCURRENTLY, VACUUM and the like"
            " change no columns)",
        ) from error
    except (errors.LockNotAvailable, errors.DeadlockDetected, errors.QueryCanceled) as error:
        # Nothing is wrong with the file: somebody else's transaction had the table, or the server was too slow.
        raise SourceUnavailable(
            f"{migration}:{line}: not tried out, Postgres has given up: {str(error).strip()}",
            means=f"{ROLLED_BACK}; another transaction may hold what this statement needs alone, a snapshot that reads"
            " the table for example",
            fix="run this again in a moment; SELECT * FROM pg_stat_activity tells who is at work",
        ) from error
    except Error as error:
        raise SourceError(
            f"Postgres refuses {migration}:{line}: {str(error).strip()}", means=ROLLED_BACK, fix="correct it"
        ) from error


def _statements(migration: Path) -> list[tuple[int, str]]:
    """A file's statements, each with the line it begins at; none that would let the rest of them stay."""
    try:
        text = migration.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{migration} can't be read: {error}", means="nothing was tried", fix="name a file with SQL in UTF-8"
        ) from error
    found = []
    for line, statement, words in unframed(list(statements(text))):
        if controls_transaction(words):
            raise ConfigError(
                f"{migration}:{line}: {' '.join(statement.split())[:60]}: a migration is tried out in one transaction,"
                " which it must not begin or end",
                means="nothing of it was executed",
                fix="leave such statements out; one BEGIN before all of it and one COMMIT behind it may stay",
            )
        found.append((line, statement))
    return found


def _told(
    pipeline: Pipeline, connection: Connection, table: str, known: Shape, now: Shape, found: list[Case]
) -> dict[str, Any]:
    mine = [case for case in found if case.table == table]
    read = together([case.decision for case in mine])
    rows = estimated_rows(connection, [table]).get(table, 0)
    return {
        "table": table,
        "changes": list(in_words(known, now, column_changes(known, now))),
        "read": None if read is None else rows if read == "" else 0,
        "views": [_view_told(case, stands_with(case, mine), rows) for case in mine],
        "rebuilt": {
            sink: cost(pipeline, sink)
            for sink in dict.fromkeys(
                case.sink
                for case in mine
                if case.living and case.decision.verdict is Verdict.NEW_GENERATION and not stands_with(case, mine)
            )
        },
    }


def _view_told(case: Case, stands: list[str], rows: int) -> dict[str, Any]:
    """What a change means for one view; what stands writes nothing, whatever it could do if no other view kept it."""
    verdict = case.decision.verdict
    written = not stands and verdict in (Verdict.READ_AGAIN, Verdict.NEW_GENERATION)
    return {
        "sink": case.sink,
        "generation": case.generation,
        "view": case.view,
        "verdict": "stands" if stands else verdict.words,
        "stands_with": stands,
        "why": list(case.decision.why),
        "asks": list(case.decision.asks),
        "documents": rows if written else 0,
    }
