"""Where each value of the pipeline file stands, and the errors that point there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cdc.errors import PipelineFileError

# More errors than this are noise: the first ones usually cause the rest.
MAX_PROBLEMS = 20

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Mark:
    """A place in the file; both numbers begin with 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, what, and the way out."""

    mark: Mark
    what: str
    fix: str = ""


@dataclass
class Marks:
    """The places of a file's keys and values.

    Attributes:
        file: its name, as the user gave it.
        values: path -> where the value begins.
        keys: path -> where the value's key stands.
        written: path -> a text as it is written in the file, before variables are filled in.
    """

    file: str
    values: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)

    def value(self, path: Sequence[str | int]) -> Mark:
        """The place of a value; of the nearest part around it that is there, if it is not."""
        full = tuple(path)
        if full in self.values:
            return self.values[full]
        return self.key(full[:-1]) if full else Mark(1, 1)

    def key(self, path: Sequence[str | int]) -> Mark:
        """The place of a key; of the nearest part around it that is there, if it is not."""
        full = tuple(path)
        while full and full not in self.keys:
            full = full[:-1]
        return self.keys.get(full, Mark(1, 1))

    def error(self, problems: Iterable[Problem]) -> PipelineFileError:
        """One error for all problems, in the file's order, each with its place; at most ``MAX_PROBLEMS``."""
        unique = {(p.mark.line, p.mark.column, p.what): p for p in problems}
        ordered = [unique[key] for key in sorted(unique)]
        if len(ordered) == 1:
            return PipelineFileError(self.line(ordered[0].mark, ordered[0].what), fix=ordered[0].fix)
        lines = [self.line(p.mark, f"{p.what}; {p.fix}" if p.fix else p.what) for p in ordered[:MAX_PROBLEMS]]
        if len(ordered) > MAX_PROBLEMS:
            lines.append(f"and {len(ordered) - MAX_PROBLEMS} more")
        return PipelineFileError("\n".join(lines))

    def line(self, mark: Mark, what: str) -> str:
        """``file:line:column: what``."""
        return f"{self.file}:{mark.line}:{mark.column}: {what}"


def near(name: str, known: Iterable[str]) -> str:
    """``did you mean a or b?`` if names look alike, else the known ones if they are few; else nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if not close:
        lower = {other.lower(): other for other in names}
        close = [lower[found] for found in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there is {', '.join(names)}" if 0 < len(names) <= 12 else ""


def shown(text: str) -> str:
    """A name from the file, fit for a message: one short line without control characters."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= 80 else clean[:77] + "..."
