"""What must change in a publication, without a server."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import pytest
from psycopg import sql

from connectors.actions import Action
from connectors.database.publication import SENT, Publication, heeds_changes, plan_publication

SET = "(publish = 'insert, update, delete', publish_via_partition_root = true)"
RIGHT = {"operations": SENT, "via_root": True, "all_tables": False}


def publication(*tables: str, **other: object) -> Publication:
    values = {"tables": frozenset(tables), "filtered": frozenset(), **RIGHT, **other}
    return Publication(**values)  # type: ignore[arg-type]


def shown(actions: list[Action]) -> list[str]:
    return [f"{action.kind} {action.name}: {action.detail}" for action in actions]


def done(actions: list[Action]) -> list[list[str]]:
    """What each action says to Postgres."""

    class Setup:
        said: list[str]

        def transaction(self) -> AbstractContextManager[None]:
            return nullcontext()

        def execute(self, statement: sql.Composed) -> None:
            self.said.append(statement.as_string())

    found, setup = [], Setup()
    for action in actions:
        setup.said = []
        action.run(SimpleNamespace(setup=setup))  # type: ignore[arg-type]
        found.append(setup.said)
    return found


def test_publication_gains_tables_before_the_connector_and_loses_them_after() -> None:
    before, after = plan_publication(publication("s.a", "s.b"), "p", ["s.b", "s.c"], 170000)
    assert shown(before) == ["publication p: add table s.c"]
    assert shown(after) == ["publication p: remove table s.a"]


def test_publication_with_wrong_options_or_filters_is_mended() -> None:
    actual = publication("s.a", operations=frozenset({"insert", "truncate"}), filtered=frozenset({"s.a"}))
    before, after = plan_publication(actual, "p", ["s.a"], 170000)
    assert shown(before) == ["publication p: set options", "publication p: send all rows and columns of s.a"]
    assert after == []


def test_publication_of_all_tables_is_not_narrowed() -> None:
    assert plan_publication(publication("s.a", "s.b", all_tables=True), "p", ["s.a"], 170000) == ([], [])


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (publication("s.a"), [['ALTER PUBLICATION "p" ADD TABLE "s"."b"']]),
        (
            publication("s.a", "s.b", filtered=frozenset({"s.a"})),
            [['ALTER PUBLICATION "p" DROP TABLE "s"."a"', 'ALTER PUBLICATION "p" ADD TABLE "s"."a"']],
        ),
        (publication("s.a", "s.b", operations=frozenset({"insert"})), [[f'ALTER PUBLICATION "p" SET {SET}']]),
        (None, [[f'CREATE PUBLICATION "p" FOR TABLE "s"."a", "s"."b" WITH {SET}']]),
    ],
)
def test_nobody_is_held_up_by_a_table_that_comes_into_a_publication(
    actual: Publication | None, said: list[list[str]]
) -> None:
    """A lock held up all that write, and was not had beside a VACUUM of one partition."""
    before, _ = plan_publication(actual, "p", ["s.b", "s.a"], 170000)
    assert done(before) == said


@pytest.mark.parametrize(
    ("version", "heeds"),
    [(130023, False), (140017, False), (140018, True), (160008, False), (160009, True), (170005, True), (180000, True)],
)
def test_releases_that_heed_a_publications_change(version: int, heeds: bool) -> None:
    assert heeds_changes(version) is heeds
