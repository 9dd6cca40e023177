"""Who the servers run as. Postgres and Elasticsearch refuse root, so a stack started by root gives them another user.

That user must be able to reach the programs and its own data: a folder below ``/root`` (0700) is out of its reach.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import StackError

RUN_AS = "HEADWATER_RUN_AS"


@dataclass(frozen=True)
class Account:
    """An operating-system user: name, uid, gid."""

    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """The user for servers that refuse root: None when we aren't root and nobody has to change.

    ``HEADWATER_RUN_AS`` names another user than ``nobody``. Raises StackError if that user doesn't exist or is root.
    """
    if os.geteuid() != 0:
        return None
    name = os.environ.get(RUN_AS, "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise StackError(
            f"the user {name!r} does not exist",
            means="Postgres and Elasticsearch refuse to run as root, and there is nobody else to run them as",
            fix=f"set {RUN_AS} to an unprivileged user of this machine, or run headwater as one",
        ) from None
    if entry.pw_uid == 0:
        raise StackError(f"{RUN_AS}={name} is root", fix=f"set {RUN_AS} to an unprivileged user, or unset it")
    return Account(name, entry.pw_uid, entry.pw_gid)


def blocked_at(path: Path, account: Account) -> Path | None:
    """The first existing folder on the way to ``path`` that ``account`` may not pass, or None.

    Looks at permission bits only (no ACLs): a wrong "blocked" costs a detour, never access.
    """
    real = path.resolve()
    for folder in [*reversed(real.parents), real]:
        try:
            status = folder.stat()
        except FileNotFoundError:
            return None
        if status.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif status.st_gid == account.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if stat.S_ISDIR(status.st_mode) and not status.st_mode & needed:
            return folder
    return None


def reachable(path: Path, account: Account | None) -> None:
    """Make a folder and those above it that are missing; whatever root's umask, ``account`` may pass what was made."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o755, exist_ok=True)
        if account is not None:
            one.chmod(0o755)


def own(path: Path, account: Account | None) -> None:
    """Give ``path`` and everything below it to ``account`` (symbolic links themselves, never what they point at)."""
    if account is None:
        return
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in [*folders, *files]:
            os.chown(Path(folder, name), account.uid, account.gid, follow_symlinks=False)
