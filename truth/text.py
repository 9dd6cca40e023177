"""Readers of two of Postgres's text forms: array literals and hstore."""

from __future__ import annotations

import re
from typing import Any

_PIECE = re.compile(r'[{},]|"(?:[^"\\]|\\.)*"|[^{},"]+', re.DOTALL)
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(NULL|"((?:[^"\\]|\\.)*)")(?:, )?', re.DOTALL)


def parse_array(text: str) -> list[Any]:
    """Nested lists of texts and None from ``{a,"b,c",NULL,{…}}``; a prefix of bounds (``[0:2]=``) is skipped.

    Raises:
        ValueError: not an array literal.
    """
    start = text.find("{")
    if start < 0 or not text.endswith("}"):
        raise ValueError(f"{text[:40]!r} is not an array")
    root: list[Any] = []
    stack = [root]
    for piece in _PIECE.findall(text[start:]):
        if piece == "{":
            inner: list[Any] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif piece == "}":
            stack.pop()
        elif piece != ",":
            stack[-1].append(_element(piece))
    if len(stack) != 1 or len(root) != 1:
        raise ValueError(f"{text[:40]!r} is not an array")
    found: list[Any] = root[0]
    return found


def _element(piece: str) -> str | None:
    if piece.startswith('"'):
        return _unescape(piece[1:-1])
    return None if piece == "NULL" else piece


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def parse_hstore(text: str) -> dict[str, str | None]:
    """A dict from ``"a"=>"1", "b"=>NULL``.

    Raises:
        ValueError: not an hstore.
    """
    found: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueError(f"{text[at : at + 40]!r} is not an hstore")
        found[_unescape(pair[1])] = None if pair[2] == "NULL" else _unescape(pair[3])
        at = pair.end()
    return found
