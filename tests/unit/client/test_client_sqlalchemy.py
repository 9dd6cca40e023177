"""Sessions of SQLAlchemy that take tokens by themselves, over SQLite in memory: transactions that come and go."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from headwater_client.sqlalchemy import follow, take_now
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

INSERT = sqlalchemy.text("INSERT INTO things (id) VALUES (1)")


class _Base(DeclarativeBase):
    pass


class _Thing(_Base):
    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)


class _LikePostgres(sqlite3.Connection):
    """In AUTOCOMMIT, as Postgres and its drivers are: they say so, and refuse a savepoint."""

    autocommit = True

    def cursor(self, *_: Any) -> sqlite3.Cursor:
        return super().cursor(_WithoutSavepoints)


class _WithoutSavepoints(sqlite3.Cursor):
    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if "SAVEPOINT" in sql:
            raise sqlite3.OperationalError("SAVEPOINT can only be used in transaction blocks")
        return super().execute(sql, *parameters)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens that the database was asked for; SQLite has no function that could give one."""
    given: list[str] = []

    def take_token(cursor: Any, pipeline: str, **_: Any) -> str:
        given.append(f"{pipeline}-{len(given)}")
        return given[-1]

    monkeypatch.setattr("headwater_client.sqlalchemy.take_token", take_token)
    return given


def followed(kept: list[str | None], **options: Any) -> Session:
    engine = sqlalchemy.create_engine("sqlite://", **options)
    _Base.metadata.create_all(engine)
    session = Session(engine)
    follow(session, "shop", keep=kept.append)
    return session


def nested(session: Session) -> None:
    with session.begin_nested():
        pass


ENDS: dict[str, list[Callable[[Session], Any]]] = {
    "a commit": [Session.commit],
    "a rollback, a commit": [Session.rollback, Session.commit],
    "a savepoint without a statement, a commit": [nested, Session.commit],
    "what take_now has flushed, a commit": [take_now, Session.commit],
}


@pytest.mark.parametrize("after", ENDS)
def test_a_commit_of_nothing_after_one_that_wrote_asks_for_no_token(asked: list[str], after: str) -> None:
    kept: list[str | None] = []
    with followed(kept) as session:
        session.execute(INSERT)
        session.commit()
        for step in ENDS[after]:
            step(session)
        assert kept == asked == ["shop-0"]
        session.add(_Thing(id=2))
        session.commit()
        assert kept == asked == ["shop-0", "shop-1"]


def test_a_write_within_a_savepoint_takes_the_token_of_the_whole_transaction(asked: list[str]) -> None:
    kept: list[str | None] = []
    with followed(kept) as session:
        with session.begin_nested():
            session.add(_Thing(id=1))
        session.add(_Thing(id=2))
        session.commit()
        session.commit()
        assert kept == asked == ["shop-0"]
        assert session.scalars(sqlalchemy.select(_Thing.id)).all() == [1, 2]


def test_a_pipeline_that_is_gone_takes_no_write_with_it() -> None:
    kept: list[str | None] = []
    with followed(kept) as session:  # SQLite knows no function of the pipeline's
        session.add(_Thing(id=1))
        session.commit()
        assert kept == [] and session.get(_Thing, 1) is not None


def test_an_engine_in_autocommit_takes_no_token_and_writes(asked: list[str]) -> None:
    kept: list[str | None] = []
    with followed(kept, isolation_level="AUTOCOMMIT", connect_args={"factory": _LikePostgres}) as session:
        session.add(_Thing(id=1))
        session.commit()
        assert kept == asked == [] and session.get(_Thing, 1) is not None


def test_a_savepoint_that_is_refused_in_a_transaction_is_an_error_because_a_commit_would_be_none(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_LikePostgres, "autocommit", False)
    with followed([], connect_args={"factory": _LikePostgres}) as session:
        session.add(_Thing(id=1))
        with pytest.raises(sqlite3.OperationalError):
            session.commit()
    assert asked == []
