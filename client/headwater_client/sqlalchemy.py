"""SQLAlchemy: a session takes the token of its writes by itself, inside its transaction, and remembers it for the user.

    follow(sessionmaker_or_Session, pipeline="shop")

The token is taken at the first flush that writes, so it is there before the response begins, also where the COMMIT
comes after it (a dependency of FastAPI that has ``yield``). What is written by ``session.execute(…)`` gets its token
at the commit; ``take_now`` takes it earlier. An engine in AUTOCOMMIT mode gets none, and of a session with several
databases the one that it has used last is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session

from headwater_client.session import remember
from headwater_client.tokens import take_token

_TAKEN, _TAKING, _BEGUN = "headwater_token_of", "headwater_taking", "headwater_begun"
_log = logging.getLogger(__name__)


def follow(
    target: Any, pipeline: str, *, schema: str = "headwater", keep: Callable[[str | None], None] = remember
) -> None:
    """Take tokens of what sessions write.

    Args:
        target: a ``Session`` class, a ``sessionmaker``, or one session.
        pipeline: the name of Headwater's pipeline.
        schema: where its helper objects are.
        keep: given each token; by default it is remembered for the request's user.
    """

    taking = _Taking(pipeline, schema, keep)
    event.listen(target, "after_begin", taking.begun)
    event.listen(target, "after_flush", lambda session, context: taking.take(session))
    # What was written without the unit of work: session.execute(update(…)).
    event.listen(target, "before_commit", taking.take)


class _Taking:
    """How a session takes its tokens."""

    def __init__(self, pipeline: str, schema: str, keep: Callable[[str | None], None]) -> None:
        self.pipeline, self.schema, self.keep = pipeline, schema, keep

    def begun(self, session: Session, transaction: Any, connection: Any) -> None:
        # `transaction` may be a nested one; the token is of the whole.
        session.info[_TAKING], session.info[_BEGUN] = self, (session.get_transaction(), connection)

    def take(self, session: Session) -> None:
        transaction = session.get_transaction()
        begun, connection = session.info.get(_BEGUN, (None, None))
        # A commit of nothing is a transaction that has no connection: the one that is known was the last one's.
        if transaction is None or begun is not transaction or session.info.get(_TAKEN) is transaction:
            return
        try:
            raw = connection.connection
            cursor = None if _in_autocommit(raw) else raw.cursor()
        except Exception as error:  # nothing was sent: the transaction is as it was
            _log.warning("no token for what was written: %s", error)
            return
        if cursor is None:
            return
        try:
            token = self._ask(cursor, session, transaction)
        finally:
            cursor.close()
        if token is not None:
            session.info[_TAKEN] = transaction
            self.keep(token)

    def _ask(self, cursor: Any, session: Session, transaction: Any) -> str | None:
        # A pipeline that was dropped must not take the application's writes with it. A savepoint that is refused is
        # not passed over: the transaction has failed by then, and its COMMIT would roll it back without a word.
        cursor.execute("SAVEPOINT headwater_token")
        try:
            token = take_token(cursor, self.pipeline, schema=self.schema, if_written=True)
        except Exception as error:
            cursor.execute("ROLLBACK TO SAVEPOINT headwater_token")
            _log.warning("no token for what was written: %s", error)
            session.info[_TAKEN] = transaction
            return None
        cursor.execute("RELEASE SAVEPOINT headwater_token")
        return token


def _in_autocommit(raw: Any) -> bool:
    """Whether each statement is a transaction of its own: none is under way that a token could be of."""
    # psycopg, psycopg2, asyncpg and pg8000 say so, whoever has set it. Of sqlite3 it is a number.
    return getattr(raw, "autocommit", False) is True


def take_now(session: Session) -> None:
    """Take the token of what a session has written so far: for who writes with plain statements, and commits after the
    response. A flush takes it by itself, and so does a commit.
    """
    session.flush()
    taking = session.info.get(_TAKING)
    if taking is not None:
        taking.take(session)
