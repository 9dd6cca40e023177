"""What a test file says, once it was read (operations/testing/files.py); every part knows its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cdc.catalogue import Table

Kind = Literal["given", "insert", "update", "delete"]
# A row: column -> what Debezium's JSON holds for its value.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One change of one row.

    Attributes:
        kind: ``given`` rows are there before anything happens.
        table: the table.
        key: of the row that is meant; the row's own for one that is added.
        row: all columns of a row that is added; of an update those that it sets.
        line: in the file, from 1.
    """

    kind: Kind
    table: Table
    key: Row
    row: Row
    line: int


@dataclass(frozen=True)
class Expected:
    """What must be said of one document.

    Attributes:
        view: the view's name.
        key: the document's id.
        document: as JSON has it; None if there must be none.
        letter: a part of the reason for which it must be a dead letter; None if that is not asked.
        line: in the file, from 1.
    """

    view: str
    key: str
    document: Any
    letter: str | None
    line: int


@dataclass(frozen=True)
class Case:
    """One test.

    Attributes:
        file: where it stands.
        line: from 1.
        name: its name.
        changes: the given rows, then the steps, in order. Each step is a transaction of its own.
        expected: the documents.
    """

    file: Path
    line: int
    name: str
    changes: Sequence[Change]
    expected: Sequence[Expected]

    @property
    def views(self) -> list[str]:
        """The views that it speaks of, each once."""
        return list(dict.fromkeys(one.view for one in self.expected))


@dataclass(frozen=True)
class Wrong:
    """A field of a document that is not as expected, or a document that is not there, or is.

    Attributes:
        expected: what was asked for.
        field: ``customer.name``; empty for the whole document.
        is_: what is there, or words for it.
        wanted: what was expected, or words for it.
    """

    expected: Expected
    field: str
    is_: Any
    wanted: Any


@dataclass
class Result:
    """How a test went.

    Attributes:
        case: the test.
        wrong: what is not as expected; empty when it passed.
        letters: what was refused on the way, for whoever wonders.
        seconds: how long it took.
    """

    case: Case
    wrong: list[Wrong] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    seconds: float = 0.0
