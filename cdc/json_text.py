"""JSON as Postgres has it, which is more than readers of JSON take: numbers beyond a double, nesting without end, and
in ``json`` halves of a surrogate pair (``"\\ud800"``), which are no text.

What only passes by goes as the text that it is (``members``, ``elements``, ``end_of``). Where it must be read, ``read``
makes of what no reader takes something that every writer does. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

# What is nested deeper is read as its own text; orjson writes 254 levels, and what is read may stand within others.
DEEPEST = 200
# Characters of a whole number of 64 bits.
_LONGEST = 20

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_HALF = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})"
_ESCAPE = re.compile(rf"\\(?:{_HALF}|.)", re.DOTALL)
_BLANK = re.compile(r"[ \t\n\r]*")
# Only to find where a value ends: Python refuses to read a whole number of thousands of digits.
_scan = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode


def fits(text: str) -> bool:
    """Whether a whole number has 64 bits; Python refuses to read one of thousands of digits."""
    return len(text) <= _LONGEST and -(2**63) <= int(text) < 2**64


def whole(text: str) -> int | float:
    """A whole number as orjson reads it; one that is larger than any double is infinite."""
    return int(text) if fits(text) else float(text)


def read(text: bytes | str, whole: Callable[[str], Any] = whole, fraction: Callable[[str], Any] = float) -> Any:
    """Read any JSON of Postgres into what ``orjson`` can write.

    Half a surrogate pair becomes the six characters of its escape, what is nested too deeply its own text.

    Args:
        text: the JSON.
        whole, fraction: make values of the texts of numbers.

    Raises:
        ValueError: not JSON.
    """
    plain = _without_halves(_shallow(text.decode() if isinstance(text, bytes) else text))
    try:
        return json.loads(plain, parse_int=whole, parse_float=fraction, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("no JSON: something is not closed") from None


def many_levels(text: bytes | str) -> bool:
    """Whether something may be nested too deeply to be written again; cheap."""
    signs = text.count(b"[") + text.count(b"{") if isinstance(text, bytes) else text.count("[") + text.count("{")
    return signs > DEEPEST


def members(text: str) -> dict[str, str]:
    """What stands in an object, each value as the text that it is; of a repeated name the last.

    Raises:
        ValueError: it is no object.
    """
    found: dict[str, str] = {}
    at = _after(text, 0, "{")
    while text[at : at + 1] != "}":
        _at(text, at, '"')
        name, end = _scan(text, at)
        start = _after(text, end, ":")
        end = end_of(text, start)
        found[name] = text[start:end]
        at = _next(text, end, "}")
    return found


def elements(text: str) -> list[str]:
    """What stands in an array, each as the text that it is.

    Raises:
        ValueError: it is no array.
    """
    found: list[str] = []
    at = _after(text, 0, "[")
    while text[at : at + 1] != "]":
        end = end_of(text, at)
        found.append(text[at:end])
        at = _next(text, end, "]")
    return found


def end_of(text: str, at: int) -> int:
    """Where a value ends, however deep it is nested and whatever numbers it has.

    Args:
        text: with the value in it.
        at: where it begins.

    Raises:
        ValueError: no JSON begins there.
    """
    try:
        return _scan(text, at)[1]
    except RecursionError:
        depth = 0
        for found in _TOKEN.finditer(text, at):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
            if depth == 0:
                return found.end()
        raise ValueError("no JSON: something is not closed") from None


def _after(text: str, at: int, sign: str) -> int:
    """Behind a sign and the blanks around it."""
    at = _blank(text, at)
    _at(text, at, sign)
    return _blank(text, at + 1)


def _next(text: str, at: int, closing: str) -> int:
    """Where the next one begins, or the closing sign stands."""
    at = _blank(text, at)
    return at if text[at : at + 1] == closing else _after(text, at, ",")


def _at(text: str, at: int, sign: str) -> None:
    if text[at : at + 1] != sign:
        raise ValueError(f"no JSON: there is no {sign} at character {at + 1}")


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _shallow(text: str) -> str:
    if not many_levels(text):
        return text
    kept: list[str] = []
    depth = start = begun = 0
    for found in _TOKEN.finditer(text):
        if found[0] in ("[", "{"):
            depth += 1
            if depth == DEEPEST + 1:
                begun = found.start()
                kept.append(text[start:begun])
        elif found[0] in ("]", "}"):
            if depth == DEEPEST + 1:
                start = found.end()
                kept.append(json.dumps(text[begun:start]))
            depth -= 1
    return "".join((*kept, text[start:]))


def _without_halves(text: str) -> str:
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: f"\\\\{found[1]}" if found[1] else found[0], text)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
