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

_TAKEN, _TAKING, _CONNECTION = "headwater_token_of", "headwater_taking", "headwater_connection"
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
        session.info[_TAKING], session.info[_CONNECTION] = self, connection

    def take(self, session: Session) -> None:
        transaction, connection = session.get_transaction(), session.info.get(_CONNECTION)
        if transaction is None or connection is None or session.info.get(_TAKEN) is transaction:
            return
        cursor = connection.connection.cursor()
        try:
            # A pipeline that was dropped must not take the application's writes with it.
            cursor.execute("SAVEPOINT headwater_token")
            try:
                token = take_token(cursor, self.pipeline, schema=self.schema, if_written=True)
            except Exception as error:
                cursor.execute("ROLLBACK TO SAVEPOINT headwater_token")
                _log.warning("no token for what was written: %s", error)
                session.info[_TAKEN] = transaction
                return
            cursor.execute("RELEASE SAVEPOINT headwater_token")
        finally:
            cursor.close()
        if token is not None:
            session.info[_TAKEN] = transaction
            self.keep(token)


def take_now(session: Session) -> None:
    """Take the token of what a session has written so far: for who writes with plain statements, and commits after the
    response. A flush takes it by itself, and so does a commit.
    """
    session.flush()
    taking = session.info.get(_TAKING)
    if taking is not None:
        taking.take(session)
