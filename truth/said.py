"""Which names stand in Spark SQL, for verification.

The engine finds them with code of its own (cdc/join/expressions.py), and a second opinion does not share it. Both must
come to the same: a row that an expression means as a whole shows all columns that some expression names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?(bd|[lsyfd])?(?!\w)", re.IGNORECASE)
_WORD, _TAG, _COMMENT = re.compile(r"\w+"), re.compile(r"\$[A-Za-z]*\$"), re.compile(r"/\*|\*/")


class _Piece(NamedTuple):
    """What may matter of a text; ``quoted`` is a name in backticks, ``value`` a number or a string."""

    kind: Literal["word", "quoted", "value", "sign"]
    text: str


@dataclass(frozen=True)
class Said:
    """What expressions say.

    Attributes:
        names: what may be a name there; case-folded, because Spark makes no difference. One of a function is none.
        whole: those of them of which not only a part is meant: ``airline`` and ``airline.*``, but not ``airline.name``.
        star: all columns of the row are meant, as in ``struct(*)``.
        every: so they are, or those of a row in it (``airline.*``). Whose a star is, the engine does not ask: for any
            it keeps all columns of all tables.
    """

    names: frozenset[str]
    whole: frozenset[str]
    star: bool
    every: bool

    @classmethod
    def of(cls, expressions: Iterable[str]) -> Said:
        """What some expressions say, of which each parses."""
        names, whole, stars = set[str](), set[str](), set[bool]()
        for text in expressions:
            pieces = [*_pieces(text), *[_Piece("sign", "")] * 2]
            for at, piece in enumerate(pieces):
                following = pieces[at + 1 : at + 3]
                if piece == ("sign", "*") and (at == 0 or pieces[at - 1] in _BEFORE_STAR):
                    stars.add(at == 0 or pieces[at - 1].text != ".")
                elif piece.kind == "quoted" or (piece.kind == "word" and following[0] != ("sign", "(")):
                    names.add(piece.text.casefold())
                    if following[0] != ("sign", ".") or following[1] == ("sign", "*"):
                        whole.add(piece.text.casefold())
        return cls(frozenset(names), frozenset(whole), True in stars, bool(stars))

    def mentions(self, name: str) -> bool:
        """Whether a name is there at all."""
        return name.casefold() in self.names

    def means_whole(self, name: str) -> bool:
        """Whether what has this name is meant as a whole somewhere."""
        return name.casefold() in self.whole


# A star behind anything else multiplies.
_BEFORE_STAR = (("sign", "("), ("sign", ","), ("sign", "."))


def _pieces(text: str) -> Iterator[_Piece]:
    """A text from left to right, without white space and comments; what follows a quote that nothing ends is none."""
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif text.startswith("--", at):
            at = _behind(text, "\n", at)
        elif text.startswith("/*", at):
            at = _behind_comment(text, at)
        elif char == "`":
            end = _behind_quote(text, at, escapes=False)
            yield _Piece("quoted", text[at + 1 : end - 1].replace("``", "`"))
            at = end
        elif (end := _behind_value(text, at)) > at:
            yield _Piece("value", text[at:end])
            at = end
        elif (word := _WORD.match(text, at)) is not None:
            yield _Piece("word", word[0])
            at = word.end()
        else:
            yield _Piece("sign", char)
            at += 1


def _behind_value(text: str, at: int) -> int:
    """The end of the string or the number that begins at a place; the place if none does."""
    if (number := _NUMBER.match(text, at)) is not None:
        return number.end()
    if text[at] in "'\"":
        return _behind_quote(text, at, escapes=True)
    if text[at] in "rR" and text[at + 1 : at + 2] in ("'", '"'):  # nothing is escaped in it
        return _behind(text, text[at + 1], at + 2)
    if (tag := _TAG.match(text, at)) is not None and text.find(tag[0], tag.end()) >= 0:
        return _behind(text, tag[0], tag.end())
    return at


def _behind(text: str, end: str, at: int) -> int:
    found = text.find(end, at)
    return len(text) if found < 0 else found + len(end)


def _behind_quote(text: str, at: int, *, escapes: bool) -> int:
    """Behind the quote that ends what one at a place begins; doubled it is itself."""
    quote, at = text[at], at + 1
    while at < len(text):
        if escapes and text[at] == "\\":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote * 2, at):
            at += 2
        else:
            return at + 1
    return len(text)


def _behind_comment(text: str, at: int) -> int:
    """Comments nest."""
    depth = 0
    for mark in _COMMENT.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)
