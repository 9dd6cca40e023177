"""SQL text taken apart into its statements, so that each can be sent by itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# What a semicolon may stand in without being an end, and words, which tell a function's body.
_SIGN = re.compile(
    r"""
      (?P<comment> --[^\n]* )
    | (?P<block> /\* )
    | (?P<text> \b[eE]'(?:[^'\\]|\\.|'')*'? | '(?:[^']|'')*'? | "(?:[^"]|"")*"?
      | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z) )
    | (?P<word> [^\W\d][\w$]* )
    | (?P<space> \s+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ROUTINE = re.compile(r"create (or replace )?(function|procedure)\b")
# Statements that end a transaction, or begin one: tried out, they would make what is tried out stay.
_CONTROL = re.compile(
    r"(begin|start transaction|commit|end|rollback|abort|savepoint|release|prepare transaction|set transaction)\b"
)
_BEGIN = re.compile(r"begin( work| transaction)?|start transaction")
_COMMIT = re.compile(r"(commit|end)( work| transaction)?")


def statements(text: str) -> Iterator[tuple[int, str, str]]:
    """The statements of a text, as psql would send them.

    Args:
        text: SQL, without psql's own commands.

    Yields:
        (the line it begins at, from 1; its text without the semicolon; its words up to the first sign, in lower case).
    """
    at = start = 0
    words: list[str] = []
    leading = empty = True
    parens = body = 0  # a semicolon inside of brackets (a rule's actions) or of BEGIN ATOMIC … END is no end
    while at < len(text):
        found = _SIGN.match(text, at)
        assert found is not None
        kind, sign = found.lastgroup, found[0]
        end = _block_end(text, at) if kind == "block" else found.end()
        if kind == "other" and sign == ";" and not parens and not body:
            if not empty:
                yield text.count("\n", 0, start) + 1, text[start:at], " ".join(words)
            start, words, leading, empty, parens, body = end, [], True, True, 0, 0
        elif kind not in ("comment", "block", "space"):
            if empty:
                start, empty = at, False
            if kind == "word":
                body += _depth(sign.lower(), words, body)
                if leading:
                    words.append(sign.lower())
            else:
                leading = False
                parens = max(0, parens + (sign == "(") - (sign == ")"))
        at = end
    if not empty:
        yield text.count("\n", 0, start) + 1, text[start:], " ".join(words)


def unframed(parts: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """Statements without the one transaction that Django's ``sqlmigrate`` and Alembic's ``--sql`` write around them.

    Args:
        parts: of ``statements``.

    Returns:
        the same if they are not framed by a plain BEGIN and COMMIT; what is between may still control transactions.
    """
    framed = len(parts) > 1 and _BEGIN.fullmatch(parts[0][2]) and _COMMIT.fullmatch(parts[-1][2])
    return parts[1:-1] if framed else parts


def _depth(word: str, words: list[str], body: int) -> int:
    """How much deeper a word leads into the body of a routine that is written in SQL."""
    if word == "begin" or (body and word == "case"):
        return int(_ROUTINE.match(" ".join(words)) is not None)
    return -1 if body and word == "end" else 0


def _block_end(text: str, at: int) -> int:
    """Where a comment ends; comments hold comments."""
    depth, end = 0, at
    while found := _COMMENT_EDGE.search(text, end):
        depth, end = depth + (1 if found[0] == "/*" else -1), found.end()
        if depth == 0:
            return end
    return len(text)


def controls_transaction(words: str) -> bool:
    """Whether a statement that begins with these words begins or ends a transaction, or a part of one."""
    return _CONTROL.match(words) is not None
