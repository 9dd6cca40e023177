"""Who has written to a table before the publication had it is waited for, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import errors, sql

from cdc.errors import SourceUnavailable
from cdc.waits import waited_for
from connectors import plan, writers
from connectors.actions import run_all
from connectors.captured.captured import LOST, Gap
from connectors.database import publication
from connectors.database.publication import SENT, Publication
from connectors.names import Names
from connectors.wal.pins import PREPARED, TRANSACTIONS, Pin
from connectors.writers import HOLDERS, plan_writers, read_writers, wait_for_writers
from tests.support.connector_cases import catalogue, pipeline

SAID = "transaction of app in shop (psql, pid 1, idle in transaction), open for 90 s: INSERT INTO t VALUES (?)"


class Server:
    """Answers with what each look in turn finds; the last one stays.

    Args:
        looks: open transactions: number -> pid, or None of a prepared one.
        locks: numbers of those that hold the lock.
    """

    def __init__(self, *looks: dict[str, int | None], locks: tuple[str, ...] = ()) -> None:
        self.looks, self.locks = list(looks), list(locks)
        self.info = SimpleNamespace(server_version=180000)
        self.asked: list[str] = []
        self.adapters = SimpleNamespace(register_loader=lambda *_: None)

    def cursor(self) -> Any:
        return self

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def execute(self, query: Any, values: Any = None) -> Any:
        self.asked.append(query.as_string() if isinstance(query, sql.Composable) else query)
        return SimpleNamespace(fetchall=lambda: list(self.answer(query)), fetchone=lambda: ("",))

    def answer(self, query: Any) -> Iterator[tuple[Any, ...]]:
        if query == TRANSACTIONS:
            for xid, pid in self.looks[0].items():
                if pid is not None:
                    yield pid, "app", "psql", "shop", "idle in transaction", "INSERT INTO t VALUES (7)", xid, 1, 90.0
        elif query == PREPARED:
            look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
            yield from (("gid", "app", "shop", xid, 1, 90.0) for xid, pid in look.items() if pid is None)
        elif query == HOLDERS:
            yield from ((xid,) for xid in self.locks)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(writers, "WRITERS_SECONDS", 0.1)


def test_who_has_written_and_holds_the_lock_of_writers_is_waited_for_and_nobody_else() -> None:
    """A long batch of another table, a VACUUM and who has not written yet hold up nothing."""
    server: Any = Server({"700": 1, "701": 2, "702": None, "703": None}, locks=("700", "699", "702"))
    assert [pin.xid for pin in read_writers(server, ["s.t"])] == ["700", "702"]


def test_transactions_are_looked_for_before_their_locks() -> None:
    """One that has ended in between is seen by who reads the table; the other way round one would be missed."""
    server: Any = Server({"700": 1}, locks=("700",))
    read_writers(server, ["s.t"])
    assert server.asked.index(HOLDERS) > max(server.asked.index(TRANSACTIONS), server.asked.index(PREPARED))


def test_it_is_waited_until_all_of_the_first_look_have_ended_and_for_none_that_begins_later() -> None:
    looks = ({"700": 1, "701": 2}, {"700": 1, "701": 2}, {"701": 2, "800": 3}, {"800": 3, "801": 1})
    server: Any = Server(*looks, locks=("700", "701", "800"))
    wait_for_writers(server, ["s.t"])
    assert server.looks == [looks[-1]]


def test_one_that_is_prepared_meanwhile_has_not_ended() -> None:
    server: Any = Server({"700": 1}, {"700": None}, locks=("700",))
    with pytest.raises(SourceUnavailable, match=r"prepared transaction 'gid' of app") as found:
        wait_for_writers(server, ["s.t"])
    assert "ROLLBACK PREPARED 'gid'" in found.value.fix


def test_who_is_waited_for_is_named_and_the_same_command_goes_on() -> None:
    server: Any = Server({"700": 1, "701": 2}, locks=("700", "701"))
    with pytest.raises(SourceUnavailable) as found:
        run_all(site(server), plan_writers("p", ["s.t"], [], {}), lambda _: None)
    assert found.value.what == (
        f"s.t: not read yet, after 0 s of waiting for who has written before it was published: {SAID}, and 1 more"
    )
    assert found.value.transient
    assert found.value.fix.startswith(
        "wait for its end, or end it in the application, or SELECT pg_terminate_backend(1)"
    )
    assert "running the same command again continues" in found.value.fix


def test_it_is_told_meanwhile_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def ended(*_: object) -> list[Pin]:
        wait = waited_for()
        told.append(wait.what if wait else "")
        return []

    monkeypatch.setattr(writers, "_open", ended)
    server: Any = Server({"700": 1}, locks=("700",))
    wait_for_writers(server, [f"s.t{n}" for n in range(6)])
    assert told == [f"Postgres: {SAID}, which has written to s.t0, s.t1, s.t2 and 3 other tables"]


def test_a_publication_is_changed_once_more_where_postgres_forgets_that_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, later transactions were read as one that was open meanwhile: nothing of the table was sent for good."""
    there = Publication(frozenset({"s.t", "s.u"}), SENT, True, False, frozenset())
    monkeypatch.setattr(publication, "read_publication", lambda *_: there)
    [action] = plan_writers("p", ["s.t"], [], {})
    newer: Any = Server({"700": 1}, {}, locks=("700",))
    action.run(site(newer))
    assert not altering(newer)
    older: Any = Server({"700": 1}, {}, {"701": 2}, {}, locks=("700", "701"))
    older.info.server_version = 160008
    action.run(site(older))
    assert altering(older) == [
        "ALTER PUBLICATION \"p\" SET (publish = 'insert, update, delete', publish_via_partition_root = true)",
        'ALTER PUBLICATION "p" DROP TABLE "s"."t"',
        'ALTER PUBLICATION "p" ADD TABLE "s"."t"',
    ]
    assert older.looks == [{}], "and who has written behind them is waited for"


def test_both_waits_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were told as 60 s, and were 120."""
    given: list[Any] = []
    monkeypatch.setattr(writers, "wait_for_writers", lambda *of: given.append(of[2:]))
    monkeypatch.setattr(writers, "publish_again", lambda *_: None)
    server: Any = Server({})
    server.info.server_version = 160008
    [action] = plan_writers("p", ["s.t"], [], {})
    action.run(site(server))
    assert len(given) == 2 and given[0] == given[1] != ()


def test_a_publication_of_somebody_elses_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    every = Publication(frozenset({"s.t"}), SENT, True, True, frozenset())
    monkeypatch.setattr(publication, "read_publication", lambda *_: every)
    server: Any = Server({})
    publication.publish_again(server, "p", ["s.t"])
    assert len(altering(server)) == 1, "no table can be taken out of one of all tables"

    def denied(_: object) -> None:
        raise errors.InsufficientPrivilege("must be owner of publication p")

    server.execute = denied
    publication.publish_again(server, "p", ["s.t"])


@pytest.mark.parametrize(
    ("captured", "gap", "waits"),
    [
        ((), None, True),
        (("s.t",), None, False),
        (("s.t",), Gap(("was not in publication p",)), True),
        (("s.t",), Gap((f"{LOST} of partition 0",)), False),
    ],
    ids=["killed before it was noted", "noted", "came back", "its topic has lost records"],
)
def test_tables_that_come_are_waited_for_whoever_put_them_into_the_publication(
    captured: tuple[str, ...], gap: Gap | None, waits: bool
) -> None:
    assert bool(plan_writers("p", ["s.t"], captured, {"s.t": gap} if gap else {})) is waits


@pytest.mark.parametrize("fresh", [True, False])
def test_they_are_waited_for_when_the_table_is_published_and_before_it_is_noted(
    monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    """A first slot waits by itself."""
    nothing = ("schema", "write_tokens", "replica_identity", "grants", "topics", "renewal")
    for name in (*(f"plan_{part}" for part in nothing), "refuse_unfit", "refuse_old_records", "emptied_tables"):
        monkeypatch.setattr(plan, name, lambda *_, **__: [])
    monkeypatch.setattr(plan, "plan_truncate", lambda *_, **__: ([], []))
    monkeypatch.setattr(plan, "tables_anew", lambda *_: set())
    loaded = pipeline()
    server: Any = Server({})
    kafka = SimpleNamespace(beginning=lambda _: [])
    servers: Any = SimpleNamespace(pipeline=loaded, names=Names.of(loaded), setup=server, connector="c", kafka=kafka)
    actual: Any = SimpleNamespace(
        catalogue=catalogue(), facts={}, gaps={}, captured={}, topics={}, connector=None, fresh=fresh, publication=None
    )
    before, _, _ = plan.prepare(servers, actual)
    kinds = [action.detail.split()[0] for action in before]
    assert kinds == ["create", *([] if fresh else ["wait"]), "rows"]


def site(server: Any) -> Any:
    return SimpleNamespace(source=server, setup=server)


def altering(server: Any) -> list[str]:
    return [said for said in server.asked if said.startswith("ALTER")]
