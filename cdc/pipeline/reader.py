"""The pipeline file's text as plain values with their places. Bounded, and every mistake has a line and a column.

Works on ruamel's parse events rather than on its loaders: events come one by one, so that depth and size are bounded
before anything is built (an alias bomb of 1 kB would otherwise fill the memory), and a duplicate key is still to be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from cdc.errors import PipelineFileError
from cdc.pipeline.marks import Mark, Marks, Path, Problem, shown

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000

# YAML 1.2's core schema. A whole number of more digits stays text: Python refuses to convert very long ones.
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE, _FALSE = re.compile(r"true|True|TRUE"), re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,30}")
_BASED = re.compile(r"0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TEXT_TAG = "tag:yaml.org,2002:str"
_SAFE_QUOTE = re.compile(r"'(\\.|[^']?|<[a-z ]+>)'")


@dataclass(eq=False)
class Node:
    """A value of the file: a text, a list or a mapping."""

    mark: Mark
    kind: str
    text: str = ""
    plain: bool = False
    items: list[tuple[Node | None, Node]] = field(default_factory=list)


def read_text(path: FilePath) -> str:
    """The file's text.

    Raises:
        PipelineFileError: no such file, not readable, over ``MAX_BYTES``, not UTF-8, empty.
    """
    marks = Marks(str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _wrong(marks, "there is no such file", "`headwater template > FILE` writes one to begin with") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file's name"
        raise _wrong(marks, f"the file can't be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise _wrong(marks, f"the file has more than {MAX_BYTES} bytes", "is it really a pipeline file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        raise marks.error([Problem(_place(before, len(before)), "not UTF-8 text", "save it as UTF-8")]) from None
    if not text.strip():
        raise _wrong(marks, "the file is empty", "`headwater template` prints one to begin with")
    return text


def read_tree(text: str, marks: Marks) -> Any:
    """Parse a text into dicts, lists and scalars, and note every place in ``marks``.

    Raises:
        PipelineFileError: not YAML, several documents, duplicate keys, too deep or too large.
    """
    try:
        root = _compose(text, marks)
    except PipelineFileError:
        raise
    except ReaderError as error:
        at = error.position if isinstance(error.position, int) else 0
        raise marks.error([Problem(_place(text, at), "a control character can't stand in the file")]) from None
    except MarkedYAMLError as error:
        raise marks.error([_syntax(error)]) from None
    except Exception as error:  # the parser's own mishaps on odd input, e.g. in a %YAML line
        raise _wrong(marks, f"not YAML ({type(error).__name__})") from None
    if root is None:
        raise _wrong(marks, "the file holds nothing but comments", "`headwater template` prints one to begin with")
    return _Builder(marks).build(root, ())


def _wrong(marks: Marks, what: str, fix: str = "") -> PipelineFileError:
    return marks.error([Problem(Mark(1, 1), what, fix)])


def _place(text: str, index: int) -> Mark:
    before = text[:index]
    return Mark(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def _syntax(error: MarkedYAMLError) -> Problem:
    found = error.problem_mark or error.context_mark
    mark = Mark(found.line + 1, found.column + 1) if found else Mark(1, 1)
    problem = error.problem or "not YAML"
    if "'\\t'" in problem:
        return Problem(mark, "a tab can't indent", "use spaces")
    # What stands between quotes may be a piece of a password that was not quoted: only single characters are shown.
    quoted = re.sub(r"'[^']*'", lambda m: m[0] if _SAFE_QUOTE.fullmatch(m[0]) else "this", problem)
    context = f"{error.context}: " if error.context and "'" not in error.context else ""
    return Problem(mark, f"not YAML: {context}{quoted}", "put quotes around values with special characters")


def _compose(text: str, marks: Marks) -> Node | None:
    """Nodes from events. An alias gives the very node of its anchor."""
    root: Node | None = None
    open_nodes: list[tuple[Node, list[Node]]] = []  # a container and, for a mapping, the key that waits for its value
    anchors: dict[str, Node] = {}
    count = 0
    for event, mark in _events(text):
        if isinstance(event, DocumentStartEvent):
            if root is not None:
                raise marks.error([Problem(mark, "a second document begins here", "keep one pipeline a file")])
            continue
        if isinstance(event, MappingEndEvent | SequenceEndEvent):
            open_nodes.pop()
            continue
        node = _node(event, mark, anchors, marks)
        if node is None:
            continue
        count += 1
        if count > MAX_NODES:
            raise marks.error([Problem(mark, f"more than {MAX_NODES} values")])
        if open_nodes:
            _attach(*open_nodes[-1], node)
        else:
            root = node
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            open_nodes.append((node, []))
            if len(open_nodes) > MAX_DEPTH:
                raise marks.error([Problem(mark, f"nested more than {MAX_DEPTH} deep")])
    return root


def _events(text: str) -> Iterator[tuple[Any, Mark]]:
    for event in YAML(typ="safe", pure=True).parse(text):
        yield event, Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def _node(event: Any, mark: Mark, anchors: dict[str, Node], marks: Marks) -> Node | None:
    if isinstance(event, AliasEvent):
        if event.anchor not in anchors:
            fix = "put quotes around a value that begins with *"
            raise marks.error([Problem(mark, "an alias (*name) without its anchor (&name)", fix)])
        return anchors[event.anchor]
    if not isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
        return None
    if event.tag is not None and not (isinstance(event, ScalarEvent) and event.tag == _TEXT_TAG):
        fix = "put quotes around a value that begins with !"
        raise marks.error([Problem(mark, "a YAML tag (!name) means nothing here", fix)])
    if isinstance(event, ScalarEvent):
        node = Node(mark, "text", event.value, plain=bool(event.implicit[0]))
    else:
        node = Node(mark, "map" if isinstance(event, MappingStartEvent) else "list")
    if event.anchor is not None:
        anchors[event.anchor] = node
    return node


def _attach(parent: Node, waiting: list[Node], node: Node) -> None:
    if parent.kind == "list":
        parent.items.append((None, node))
    elif waiting:
        parent.items.append((waiting.pop(), node))
    else:
        waiting.append(node)


class _Builder:
    """Turns nodes into values; counts, because aliases can make a small file large and a loop endless."""

    def __init__(self, marks: Marks) -> None:
        self.marks, self.count = marks, 0

    def build(self, node: Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_NODES or len(path) > MAX_DEPTH:
            raise self._error(node, "aliases make the file too large or endless", "write the values out")
        self.marks.values[path] = node.mark
        if node.kind == "text":
            self.marks.written[path] = node.text
            return _scalar(node)
        if node.kind == "list":
            return [self._item(item, (*path, index)) for index, (_, item) in enumerate(node.items)]
        out: dict[str, Any] = {}
        for key, value in node.items:
            name = self._key(key, out, path)
            self.marks.keys[(*path, name)] = key.mark if key else node.mark
            out[name] = self.build(value, (*path, name))
        return out

    def _item(self, node: Node, path: Path) -> Any:
        self.marks.keys[path] = node.mark
        return self.build(node, path)

    def _key(self, key: Node | None, seen: dict[str, Any], path: Path) -> str:
        assert key is not None
        if key.kind != "text" or not key.text:
            raise self._error(key, "a key must be a name", "put quotes around values that begin with { or [ or ?")
        if key.plain and key.text == "<<":
            raise self._error(key, "merge keys (<<) mean nothing here", "write the keys out")
        if key.text in seen:
            first = self.marks.keys[(*path, key.text)]
            raise self._error(key, f"key {shown(key.text)} stands here again; the first is in line {first.line}")
        return key.text

    def _error(self, node: Node, what: str, fix: str = "") -> PipelineFileError:
        return self.marks.error([Problem(node.mark, what, fix)])


def _scalar(node: Node) -> Any:
    text = node.text
    if not node.plain:
        return text
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return bool(_TRUE.fullmatch(text))
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
