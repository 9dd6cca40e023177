"""YAML text to a tree of nodes that know where they stand.

ruamel.yaml reads the text into events; what they mean is decided here, so that every value keeps its line and column,
duplicate keys are refused, tags can build nothing, and no file, however odd, costs more than a bounded time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from cdc.json_text import fits
from cdc.pipeline.problems import Problem, shown

# A file that `init` writes for 2,000 tables is about 1 MiB; long names make it larger.
MAX_BYTES = 4 << 20
# The pipeline file's own depth is 6; Elasticsearch mappings with objects and multi-fields add a few.
MAX_DEPTH = 40
# Read one by one, by every command that reads the file: 0.1 ms each on a busy machine. A view with four joins has about
# 25, so this is two thousand of those, the most tables that a file takes.
MAX_NODES = 50_000
# With aliases expanded: ten aliases of ten aliases of ten ... would otherwise fill the memory. What an alias stands for
# is read once, and only looked at again.
MAX_EXPANDED = 200_000
# A longer number is text: it is none that any key takes, and Python's own conversion takes quadratic time.
MAX_DIGITS = 36

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")


class SyntaxProblem(Exception):
    """The text can't be read on from here."""

    def __init__(self, line: int, column: int, what: str, fix: str = "") -> None:
        self.problem = Problem(line, column, what, fix)
        super().__init__(what)


@dataclass(slots=True)
class FileNode:
    """A scalar (None, bool, int, float, str), a list of nodes or a mapping of nodes.

    Attributes:
        line: from 1.
        column: from 1.
        value: the scalar, ``list[FileNode]`` or ``dict[str, FileNode]``.
        keys: of a mapping: (line, column) of each key.
        size: nodes in it, with aliases expanded.
        quoted: a scalar in quotes, or a block of text.
        variable: a ``${NAME}`` made the whole of it.
    """

    line: int
    column: int
    value: Any = field(default=None, repr=False)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    size: int = 1
    quoted: bool = False
    variable: bool = False

    def kind(self) -> str:
        """In words, for messages."""
        for of, words in _KINDS:
            if isinstance(self.value, of):
                return words
        return "nothing"

    def plain(self) -> Any:
        """Its value without the places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


_KINDS: tuple[tuple[type, str], ...] = (
    (dict, "a mapping"),
    (list, "a list"),
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
)


def decode(data: bytes) -> str:
    """The file's text.

    Raises:
        SyntaxProblem: too large, or not UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise SyntaxProblem(1, 1, f"the file is larger than {MAX_BYTES // 1024} KiB", "is this a pipeline file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line_start = before.rfind(b"\n") + 1
        column = len(before[line_start:].decode("utf-8", "replace")) + 1
        raise SyntaxProblem(
            before.count(b"\n") + 1, column, "this byte is not UTF-8", "save the file as UTF-8"
        ) from None


def is_text(value: str) -> bool:
    """Whether a text can be sent anywhere: no NUL, and no half of a surrogate pair, which UTF-8 can't encode."""
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def parse(text: str) -> tuple[FileNode, list[Problem]]:
    """Read a YAML document.

    Args:
        text: at most ``MAX_BYTES``.

    Returns:
        the root mapping and what is wrong but does not stop the reading (duplicate keys).

    Raises:
        SyntaxProblem: not YAML, or out of bounds.
    """
    builder = _Builder(text)
    try:
        root = builder.document()
    except SyntaxProblem:
        raise
    except MarkedYAMLError as error:
        raise _syntax(error, text) from None
    except Exception as error:  # ruamel.yaml lets ValueError, AttributeError and others through on odd input
        index = getattr(error, "position", None)
        if not isinstance(index, int):
            raise SyntaxProblem(builder.line, 1, "not valid YAML from here on") from None
        before = text[:index]
        column = index - before.rfind("\n")
        raise SyntaxProblem(before.count("\n") + 1, column, "a character that YAML does not allow") from None
    return root, builder.problems


_FLOW = re.compile("flow (mapping|sequence)")
_BRACKETS = {"mapping": ("{", "}"), "sequence": ("[", "]")}


def _syntax(error: MarkedYAMLError, text: str) -> SyntaxProblem:
    """ruamel.yaml's words without what it quotes from the file: an unquoted password may be taken for an alias."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    rows = text.splitlines()
    row = rows[line - 1] if line <= len(rows) else ""
    said = str(error.problem or error.context or "")
    what = re.sub(r"\s*(%?['\"].*['\"]|\(.*\))", " ...", said, flags=re.DOTALL).split("\n")[0].strip()
    if "\\t" in said or row[: max(column, 1)].endswith("\t"):
        return SyntaxProblem(line, column, "a tab where YAML wants spaces", "indent with spaces")
    if "alias" in said:
        return _no_anchor(line, column)
    fix = ""
    if "${" in row and ("flow" in str(error.context) or "{" in row[:column]):
        fix = 'inside { } and [ ], put a variable in quotes: "${NAME}"'
    elif said.startswith("expected") and error.context_mark and (flow := _FLOW.search(str(error.context))):
        begin, end = _BRACKETS[flow[1]]
        at = error.context_mark
        what = f"{begin} of line {at.line + 1}, column {at.column + 1}, is still open here"
        fix = f"close it with {end}, or put a comma between its parts"
    elif "could not find expected ':'" in said or "mapping values" in said:
        fix = "look here and a line above for a missing space after a colon, a missing quote or a wrong indentation"
    return SyntaxProblem(line, column, f"not valid YAML: {what}", fix)


# The names that `init` gives. Any other may be a password that begins with *, and is not shown.
_OURS = re.compile(r"[a-z][a-z0-9_]{0,63}_columns(_[0-9]{1,3})?")


def _no_anchor(line: int, column: int, name: str = "") -> SyntaxProblem:
    """An alias of what is gone: most often the view that had the list was deleted."""
    name = name if _OURS.fullmatch(name) else "name"
    return SyntaxProblem(
        line,
        column,
        f"an alias (*{name}) of an anchor that is not there: `&{name}` was with a list that is gone, or comes later",
        f"write the list here, with `&{name}` before it; a text that begins with * wants quotes",
    )


class _Builder:
    """Events to nodes. Recursion is bounded by ``MAX_DEPTH``."""

    def __init__(self, text: str) -> None:
        self.events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)
        self.anchors: dict[str, FileNode | None] = {}
        self.problems: list[Problem] = []
        self.nodes = 0
        self.line = 1

    def document(self) -> FileNode:
        for event in self.events:
            name = type(event).__name__
            if name == "StreamEndEvent":
                raise SyntaxProblem(1, 1, "the file is empty", "`headwater template` prints a file to start from")
            if name not in ("StreamStartEvent", "DocumentStartEvent"):
                break
        root = self._node(event, 0)
        for event in self.events:
            if type(event).__name__ == "DocumentStartEvent":
                raise SyntaxProblem(
                    *_at(event), "a second document begins here", "one file is one pipeline: remove `---`"
                )
        if root.value is None:
            raise SyntaxProblem(1, 1, "the file is empty", "`headwater template` prints a file to start from")
        if not isinstance(root.value, dict):
            raise SyntaxProblem(root.line, root.column, f"expected a mapping (`key: value` lines), got {root.kind()}")
        return root

    def _node(self, event: Any, depth: int) -> FileNode:
        line, column = _at(event)
        self.line, self.nodes = line, self.nodes + 1
        if depth > MAX_DEPTH:
            raise SyntaxProblem(line, column, f"nested deeper than {MAX_DEPTH}")
        if self.nodes > MAX_NODES:
            raise SyntaxProblem(line, column, f"more than {MAX_NODES} values")
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event)
        if getattr(event, "tag", None) not in (None, "!"):
            raise SyntaxProblem(line, column, "tags (!name) mean nothing here", "quote a text that begins with !")
        if event.anchor:
            self.anchors[event.anchor] = None  # not finished: an alias to it from inside is a loop
        if kind == "ScalarEvent":
            if not is_text(str(event.value)):
                raise SyntaxProblem(line, column, "an escape (\\0, \\uD800 ...) that stands for no character")
            node = FileNode(line, column, _scalar(event), quoted=event.style is not None and event.style != "")
        elif kind == "SequenceStartEvent":
            node = self._sequence(line, column, depth)
        else:
            node = self._mapping(line, column, depth)
        if node.size > MAX_EXPANDED:
            raise SyntaxProblem(line, column, f"more than {MAX_EXPANDED} values with its aliases expanded")
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> FileNode:
        if event.anchor not in self.anchors:
            raise _no_anchor(*_at(event), event.anchor)
        node = self.anchors[event.anchor]
        if node is None:
            raise SyntaxProblem(
                *_at(event), "an alias inside of what it stands for", "write it out as often as it is needed"
            )
        return node

    def _sequence(self, line: int, column: int, depth: int) -> FileNode:
        items = []
        for event in self.events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            items.append(self._node(event, depth + 1))
        return FileNode(line, column, items, size=1 + sum(item.size for item in items))

    def _mapping(self, line: int, column: int, depth: int) -> FileNode:
        node = FileNode(line, column, {})
        merges: list[FileNode] = []
        for event in self.events:
            kind = type(event).__name__
            if kind == "MappingEndEvent":
                break
            at = _at(event)
            if kind != "ScalarEvent":
                raise SyntaxProblem(*at, "a key must be a name", 'inside { }, put a variable in quotes: "${NAME}"')
            key = str(event.value)
            if not is_text(key):
                raise SyntaxProblem(*at, "a key that is not text")
            value = self._node(next(self.events), depth + 1)
            node.size += value.size
            if key == "<<" and not event.style:
                merges += self._merged(value)
            elif key in node.value:
                self.problems.append(Problem(*at, f"key {shown(key)} is here a second time", "keep one of the two"))
            else:
                node.value[key], node.keys[key] = value, at
        for merge in merges:
            for key, value in merge.value.items():
                if key not in node.value:
                    node.value[key], node.keys[key] = value, merge.keys[key]
        return node

    def _merged(self, value: FileNode) -> list[FileNode]:
        nodes = value.value if isinstance(value.value, list) else [value]
        for node in nodes:
            if not isinstance(node.value, dict):
                raise SyntaxProblem(node.line, node.column, f"<< takes mappings (<<: *anchor), got {node.kind()}")
        return list(nodes)


def _at(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _scalar(event: Any) -> bool | int | float | str | None:
    """YAML 1.2's core types, decimal only: `no` and `1:30` are text, `010` is ten.

    A whole number is exact in 64 bits; a larger one is a double, as any number with a fraction.
    """
    text = str(event.value)
    if event.style:
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text) and fits(text):
        return int(text)
    if len(text) <= MAX_DIGITS and _FLOAT.fullmatch(text):
        return float(text)
    return text
