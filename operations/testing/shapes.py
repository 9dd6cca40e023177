"""Tables of a test file: their columns as SQL types in words, or from a catalogue that was saved."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cdc.catalogue import Catalogue, Column, Table
from cdc.types.rules import RULES, SQL_NAMES

# `numeric(10, 2)[] not null`, `timestamp(3) with time zone`, `enum(open, paid)`.
_TYPE = re.compile(
    r"(?P<name>[a-z_][a-z0-9_ ]*?|\"char\")\s*(?:\((?P<inside>[^)]*)\))?(?P<rest>(?: with(?:out)? time zone)?)"
    r"\s*(?P<array>\[\])?(?P<required>\s+not\s+null)?",
    re.IGNORECASE,
)
# How Postgres prints what people shorten, where the length that follows decides what a value may be.
_PRINTED = {"varchar": "character varying", "bpchar": "character", "char": "character", "decimal": "numeric"}
# Of an array whose elements are named by a word that Postgres does not print, they look like a domain's.
_ELEMENTS = {"int": "integer", "float": "double precision"}
_SERIALS = {"serial": "int4", "bigserial": "int8", "smallserial": "int2", "int": "int4", "float": "float8"}


def column_of(name: str, text: str, *, key: bool) -> Column:
    """A column from its type in words.

    Args:
        name: the column's name.
        text: a type as SQL has it, ``not null`` behind it if it is meant; ``enum(a, b)`` for an enum.
        key: whether it is one of the key's.

    Raises:
        ValueError: no type that Headwater knows.
    """
    found = _TYPE.fullmatch(" ".join(text.split()))
    if found is None:
        raise ValueError(f"{text!r:.60} is no type: expected one like text, numeric(10,2), timestamptz, int[] not null")
    word, inside, array = found["name"].lower(), found["inside"], bool(found["array"])
    nullable = not (found["required"] or key)
    if word == "enum":
        labels = tuple(label.strip().strip("'") for label in (inside or "").split(","))
        if not all(labels):
            raise ValueError(f"{text!r:.60}: an enum needs its values: enum(open, paid)")
        return Column(name, "enum", "enum", array=array, nullable=nullable, enum_values=labels)
    word += found["rest"].lower()
    base = _SERIALS.get(word) or SQL_NAMES.get(word, "bpchar" if word == "char" else word.strip('"'))
    if base not in RULES or base == "enum":
        raise ValueError(f"{text!r:.60}: there is no type {found['name']} (an enum is written as enum(a, b))")
    precision = scale = None
    if base == "numeric" and inside:
        precision, scale = (int(part) for part in [*inside.split(","), "0"][:2])
    length = f"({inside.replace(' ', '')})" if inside else "(1)" if base == "bpchar" else ""
    printed = _PRINTED | _ELEMENTS if array else _PRINTED
    kind = f"{printed.get(found['name'].lower(), found['name'].lower())}{length}{found['rest'].lower()}"
    return Column(name, kind + ("[]" if array else ""), base, precision, scale, array, nullable)


def saved(catalogue: Catalogue) -> str:
    """A catalogue as a file that is kept beside tests: without what only one server has, a line a column."""
    plain = json.loads(Catalogue(catalogue.tables).to_json())
    return json.dumps(plain, indent=1, sort_keys=True) + "\n"


def read_saved(path: Path) -> dict[str, Table]:
    """The tables of a file that ``saved`` has made.

    Raises:
        OSError: it can't be read. StateError: it is no catalogue (terminal).
    """
    return dict(Catalogue.from_json(path.read_text(encoding="utf-8")).tables)
