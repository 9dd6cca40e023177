"""Taking a token of a write, through any cursor of the Python database API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

# As Headwater's pipeline file takes it, so it can be part of an SQL name.
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,39}", re.IGNORECASE)


class BadPipelineName(ValueError):
    """That can't be the name of a pipeline, or of a schema."""


class Cursor(Protocol):
    """Of psycopg, psycopg2, Django, or any other database API."""

    def execute(self, query: Any) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """The first row of its result."""


def take_token(
    cursor: Cursor, pipeline: str, *, schema: str = "headwater", after_commit: bool = False, if_written: bool = False
) -> str | None:
    """Ask the database for a token of what this session has written.

    Args:
        cursor: inside the transaction that writes; or, with ``after_commit``, after its COMMIT on the same connection.
        pipeline: the name of Headwater's pipeline.
        schema: where its helper objects are (``source.schema`` of the pipeline file).
        after_commit: it has been committed: without this the token would be of a transaction of its own.
        if_written: no token for a transaction that has written nothing yet.

    Returns:
        The token: text of at most 128 characters that needs no quoting in a header or cookie. None if there can't
        be one: the transaction has written nothing, or its ``synchronous_commit`` is off, so that a crash may take
        it back.

    Raises:
        BadPipelineName: the name can't be one.
        What the database raises: there is no such function (the pipeline was not applied), say.
    """
    for name in (pipeline, schema):
        if not _NAME.fullmatch(name):
            raise BadPipelineName(f"{name!r} is no name of a pipeline or schema")
    call = f'"{schema}"."token_{pipeline}"({"true" if after_commit else "false"})'
    if if_written and not after_commit:
        call = f"CASE WHEN pg_current_xact_id_if_assigned() IS NOT NULL THEN {call} END"
    cursor.execute(f"SELECT {call}")
    row = cursor.fetchone()
    if row is None:
        return None
    value = next(iter(row.values())) if isinstance(row, Mapping) else row[0]  # dict_row, RealDictCursor
    return None if value is None else str(value)
