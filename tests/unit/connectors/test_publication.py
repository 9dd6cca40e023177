"""What must change in a publication, without a server."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import psycopg
import pytest
from psycopg import sql

from cdc.errors import SourceUnavailable
from connectors.actions import Action, run_all
from connectors.database.publication import SENT, Publication, plan_publication

LOCK = 'LOCK TABLE "s"."{}" IN SHARE ROW EXCLUSIVE MODE'
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
    before, after = plan_publication(publication("s.a", "s.b"), "p", ["s.b", "s.c"], 170000, fresh=False)
    assert shown(before) == ["publication p: add table s.c"]
    assert shown(after) == ["publication p: remove table s.a"]


def test_publication_with_wrong_options_or_filters_is_mended() -> None:
    actual = publication("s.a", operations=frozenset({"insert", "truncate"}), filtered=frozenset({"s.a"}))
    before, after = plan_publication(actual, "p", ["s.a"], 170000, fresh=False)
    assert shown(before) == ["publication p: set options", "publication p: send all rows and columns of s.a"]
    assert after == []


def test_publication_of_all_tables_is_not_narrowed() -> None:
    assert plan_publication(publication("s.a", "s.b", all_tables=True), "p", ["s.a"], 170000, fresh=False) == ([], [])


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (publication("s.a"), [[LOCK.format("b"), 'ALTER PUBLICATION "p" ADD TABLE "s"."b"']]),
        (
            publication("s.a", "s.b", filtered=frozenset({"s.a"})),
            [
                [
                    LOCK.format("a"),
                    'ALTER PUBLICATION "p" DROP TABLE "s"."a"',
                    'ALTER PUBLICATION "p" ADD TABLE "s"."a"',
                ]
            ],
        ),
        (
            publication("s.a", "s.b", operations=frozenset({"insert"})),
            [[LOCK.format("a"), LOCK.format("b"), f'ALTER PUBLICATION "p" SET {SET}']],
        ),
        (
            publication("s.a", "s.b", via_root=False),
            [[LOCK.format("a"), LOCK.format("b"), f'ALTER PUBLICATION "p" SET {SET}']],
        ),
        # It sent too much: nothing is missing.
        (
            publication("s.a", "s.b", operations=frozenset({"insert", "update", "delete", "truncate"})),
            [[f'ALTER PUBLICATION "p" SET {SET}']],
        ),
        # Somebody has dropped it.
        (
            None,
            [
                [f'CREATE PUBLICATION "p" WITH {SET}'],
                [LOCK.format("a"), 'ALTER PUBLICATION "p" ADD TABLE "s"."a"'],
                [LOCK.format("b"), 'ALTER PUBLICATION "p" ADD TABLE "s"."b"'],
            ],
        ),
    ],
)
def test_a_table_comes_into_a_publication_when_nobody_has_written_to_it(
    actual: Publication | None, said: list[list[str]]
) -> None:
    """What an open transaction had written by then was neither sent nor read: lost in every sink."""
    before, _ = plan_publication(actual, "p", ["s.b", "s.a"], 170000, fresh=False)
    assert done(before) == said


@pytest.mark.parametrize("actual", [None, publication("s.a", operations=frozenset({"insert"}))])
def test_before_a_first_snapshot_nobody_is_waited_for(actual: Publication | None) -> None:
    """The slot is made behind it, and that waits for all."""
    before, _ = plan_publication(actual, "p", ["s.b", "s.a"], 170000, fresh=True)
    assert "LOCK" not in str(done(before))


def test_an_owner_who_may_not_lock_waits_for_nobody() -> None:
    """Who writes to a table of an audit only by a function, and has revoked the rest from everybody."""
    said: list[str] = []

    def execute(statement: sql.Composed) -> None:
        said.append(statement.as_string())
        if said[-1].startswith("LOCK"):
            raise psycopg.errors.InsufficientPrivilege("permission denied for table b")

    [action], _ = plan_publication(publication("s.a"), "p", ["s.a", "s.b"], 170000, fresh=False)
    action.run(SimpleNamespace(setup=SimpleNamespace(transaction=nullcontext, execute=execute)))  # type: ignore[arg-type]
    assert said == [LOCK.format("b"), 'ALTER PUBLICATION "p" ADD TABLE "s"."b"']


def test_who_keeps_a_table_out_of_a_publication_is_named() -> None:
    def execute(statement: sql.Composed) -> None:
        if '"s"."b"' in statement.as_string():
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")

    actual = publication("s.a", "s.b", operations=frozenset({"insert"}))
    [action], _ = plan_publication(actual, "p", ["s.a", "s.b"], 170000, fresh=False)
    setup = SimpleNamespace(transaction=nullcontext, execute=execute)
    with pytest.raises(SourceUnavailable, match=r"until nobody writes to s\.b: gave up after waiting 10 s") as found:
        run_all(SimpleNamespace(setup=setup), [action], lambda _: None)  # type: ignore[arg-type]
    assert "nothing was changed by this step" in found.value.means
    assert "end the long transaction" in found.value.fix
