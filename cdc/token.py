"""A write token: what an application keeps of a transaction of its own, to ask later whether readers can see it. Pure.

    x1.<system>.<timeline>.<installation>.<life>.<witness>.<transaction id>      taken inside the transaction
    a1.<system>.<timeline>.<installation>.<life>.<witness>.<LSN>                 taken after its COMMIT

Numbers are hexadecimal. Made by a function in the database (connectors/database/write_tokens.py), read here. An LSN
that is taken inside a transaction says nothing: another session's commit may move the slot beyond it while ours is
still under way. The middle part says in which history of the database the write was made (docs/decisions/gaps.md): a
copy that was put back, or a server that took over without the write, does not know it.

Docs: docs/decisions/write-tokens.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cdc.errors import BadToken

# A cookie or header holds it; whoever sends more sends something else.
MAX_CHARS = 128
_KINDS: dict[str, Literal["transaction", "lsn"]] = {"x1": "transaction", "a1": "lsn"}
_FORM = re.compile(
    r"(?P<kind>x1|a1)\.(?P<system>[0-9a-f]{1,16})\.(?P<timeline>[0-9a-f]{1,8})\.(?P<installation>[0-9a-f]{8})"
    r"\.(?P<life>[0-9a-f]{8})\.(?P<witness>[0-9a-f]{1,16})\.(?P<value>[0-9a-f]{1,16})"
)


@dataclass(frozen=True)
class History:
    """In which history of a database something was, or is.

    Attributes:
        system_identifier: the cluster's.
        timeline: grows when another server takes over.
        installation: the beginning of the token of our witness table: which installation of ours.
        life: of a number that is gone once the server may have lost something: after a crash, in a copy.
        witness: the highest number that a runner had left there.
    """

    system_identifier: int
    timeline: int
    installation: str
    life: str
    witness: int


@dataclass(frozen=True)
class WriteToken:
    """What a token says.

    Attributes:
        kind: ``transaction``: ``value`` is its id (xid8); ``lsn``: ``value`` is in bytes.
        history: of the database when it was taken.
        value: see ``kind``.
    """

    kind: Literal["transaction", "lsn"]
    history: History
    value: int


def parse_token(text: str) -> WriteToken:
    """Read a token.

    Raises:
        BadToken: it is none, or a newer Headwater's (terminal).
    """
    found = _FORM.fullmatch(text) if len(text) <= MAX_CHARS else None
    if found is None:
        raise BadToken(
            f"{text[:40]!r} is no write token",
            fix="pass on what headwater_client took in the transaction or after COMMIT, unchanged",
        )
    history = History(
        int(found["system"], 16),
        int(found["timeline"], 16),
        found["installation"],
        found["life"],
        int(found["witness"], 16),
    )
    return WriteToken(_KINDS[found["kind"]], history, int(found["value"], 16))


def differs(token: History, now: History) -> str | None:
    """Why a token's history is not the one that the database is in now; None if it is. Pure."""
    if token.system_identifier != now.system_identifier:
        return "it was taken on another Postgres cluster"
    if token.timeline != now.timeline:
        return f"it was taken on timeline {token.timeline}, the database is on {now.timeline}: another server took over"
    if token.installation != now.installation:
        return "it is another pipeline's, or this one was made anew since it was taken"
    if token.life != now.life:
        return "the server has crashed since it was taken, or is a copy: the newest writes may be lost"
    if token.witness > now.witness:
        return "the database was put back to a copy from before it was taken"
    return None
