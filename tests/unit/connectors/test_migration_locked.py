"""A migration that is tried out on a table which somebody else has."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from psycopg import errors

from cdc.errors import SourceUnavailable
from cdc.pipeline import Pipeline
from connectors.postgres import Connection
from operations.schema.migrations import _tried


class Held:
    """A connection to a server where a lock on every table is somebody else's."""

    def transaction(self, *, force_rollback: bool) -> nullcontext[None]:
        assert force_rollback
        return nullcontext()

    def execute(self, statement: str | bytes, **_: Any) -> None:
        if b"ALTER" in (statement if isinstance(statement, bytes) else statement.encode()):
            raise errors.LockNotAvailable("canceling statement due to lock timeout")


def test_a_lock_that_is_not_had_is_no_mistake_in_the_file(tmp_path: Path) -> None:
    migration = tmp_path / "V7__prices.sql"
    migration.write_text("SELECT 1;\nALTER TABLE item ADD COLUMN price numeric;\n")
    with pytest.raises(SourceUnavailable) as caught:
        _tried(cast(Connection, Held()), cast(Pipeline, None), migration)
    assert caught.value.transient
    assert ":2: not tried out" in caught.value.what and "lock timeout" in caught.value.what
    assert "rolled back" in caught.value.means
    assert "again" in caught.value.fix and "correct" not in caught.value.fix
