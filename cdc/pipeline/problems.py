"""What is wrong with a pipeline file, where; and how that is told.

No message holds a value of the file: a value may be a secret in the wrong place. Keys are shown when they are plain
names, because ``password:hunter2`` with its space forgotten is a key too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cdc.errors import PipelineFileError

# A screenful: one wrong indentation can make hundreds of follow-up errors, of which the first few say it all.
MAX_REPORTED = 20

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.*-]{1,64}")


class Problem(NamedTuple):
    """One thing that is wrong.

    Attributes:
        line: from 1.
        column: from 1, in characters.
        what: what was found and what was expected.
        fix: the way out, or "".
    """

    line: int
    column: int
    what: str
    fix: str = ""


class Wrong(NamedTuple):
    """Something that does not fit, at a path of the file (keys and indexes)."""

    path: tuple[str | int, ...]
    what: str
    fix: str = ""


def report(file: str, problems: Iterable[Problem]) -> PipelineFileError:
    """One error for all problems, in the order of the file; its message begins with ``file:line:column``."""
    ordered = list(dict.fromkeys(sorted(problems)))
    if len(ordered) == 1:
        line, column, what, fix = ordered[0]
        return PipelineFileError(f"{file}:{line}:{column}: {what}", fix=fix)
    lines = [f"{file}:{p.line}:{p.column}: {p.what}" + (f"; {p.fix}" if p.fix else "") for p in ordered[:MAX_REPORTED]]
    if len(ordered) > MAX_REPORTED:
        lines.append(f"... and {len(ordered) - MAX_REPORTED} more")
    return PipelineFileError("\n".join(lines))


def shown(name: str) -> str:
    """A key of the file as a message may show it: quoted, or described when it is not a plain name."""
    if _PLAIN_NAME.fullmatch(name):
        return f"'{name}'"
    head, colon, _ = name.partition(":")
    if colon and _PLAIN_NAME.fullmatch(head):
        return f"'{head}:...' (is a space missing after the colon?)"
    return "(not shown: it is not a plain name)"


def near(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean ...?`` for a name that is close to known ones, and what to do if it was meant as it is."""
    found = difflib.get_close_matches(name[:200], list(known), n=2)
    meant = f"did you mean {' or '.join(repr(item) for item in found)}?" if found else ""
    return f"{meant} If not, {otherwise}" if meant and otherwise else meant or otherwise


def one_of(known: Sequence[str]) -> str:
    """``'a', 'b' or 'c'``."""
    quoted = [f"'{name}'" for name in known]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
