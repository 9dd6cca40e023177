"""Whether `run` may log in as the tables' owner: it needs that when a table changes, which may be months later."""

from __future__ import annotations

from cdc.errors import SourceError, SourceRefused
from cdc.pipeline import Source
from connectors.postgres import connect


def owner_refused(source: Source) -> str | None:
    """Try the login of ``setup_user`` once.

    Args:
        source: the pipeline's ``source``.

    Returns:
        What to warn of; None if it is taken, if there is no such role, or if the server is away, which is no refusal.
    """
    if source.setup_user is None:
        return None
    try:
        connect(source, setup=True).close()
    except SourceError as error:
        if error.transient and not isinstance(error, SourceRefused):
            return None
        return (
            f"{error.what}: tables that are altered can't be captured or read again; put"
            " source.setup_password into the environment of `run`, and start it again"
        )
    return None
