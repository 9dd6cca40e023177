"""Tables are migrated under a writer, and every sink follows by itself: see docs/schema-changes.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.local import ready
from tests.support.migrating import Migrating, Readers, Rows
from tests.support.migrations import MIGRATIONS, Migration

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Migrating]:
    migrating = Migrating(ready(), tmp_path_factory.mktemp("migrating"))
    with migrating.running():
        yield migrating


def noticed(migrating: Migrating, before: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Whether the table's shape is another one than before."""
    return lambda shape: shape != before and bool(shape)


@pytest.mark.parametrize("migration", MIGRATIONS, ids=lambda one: one.name.replace(" ", "-"))
def test_each_migration_under_a_writer(made: Migrating, migration: Migration) -> None:
    before = made.evolution()["acted"]["public.things"]["table"]
    with Rows(made.conninfo), Readers(made):
        time.sleep(0.5)
        for statement in migration.sql.split("; "):
            made.execute(statement)
        if migration.changes:
            made.migrated("public.things", noticed(made, before))
        time.sleep(2)
    made.assert_equal()
    assert {flow["state"] for flow in made.flows()} == {"running"}
