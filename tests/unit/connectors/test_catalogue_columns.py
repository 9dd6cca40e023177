"""What Postgres is asked of columns' types: of those that are read, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Table
from cdc.join.comparable import not_counted, not_joined
from cdc.types import unsupported
from connectors.tables import catalogue
from connectors.tables.catalogue import COLUMNS, TYPES, UNIQUE_COLUMNS, unique_columns
from truth.values import expected, select_expression

INT, TEXT, DOMAIN, ARRAY, ENUM, MONEY, MONEYS, BOX, JSON, PRICE = 23, 25, *range(9001, 9009)
CHAR, CODE, CODES, FILLED = 1042, *range(9009, 9012)
# oid, name, kind, base, base's modifier, whether it is an array, element, not null, schema of a user's own, labels
TYPE_ROWS: dict[int, tuple[Any, ...]] = {
    INT: (INT, "int4", "b", 0, -1, False, 0, False, None, None),
    TEXT: (TEXT, "text", "b", 0, -1, False, 0, False, None, None),
    DOMAIN: (DOMAIN, "number", "d", INT, -1, False, 0, True, "app", None),
    ARRAY: (ARRAY, "_text", "b", 0, -1, True, TEXT, False, None, None),
    MONEY: (MONEY, "money", "c", 0, -1, False, 0, False, "app", None),
    MONEYS: (MONEYS, "_money", "b", 0, -1, True, MONEY, False, "app", None),
    BOX: (BOX, "numeric", "d", PRICE, -1, False, 0, False, "app", None),
    JSON: (JSON, "json", "e", 0, -1, False, 0, False, "my app", ["{}"]),
    PRICE: (PRICE, "price", "c", 0, -1, False, 0, False, "app", None),
    CHAR: (CHAR, "bpchar", "b", 0, -1, False, 0, False, None, None),
    CODE: (CODE, "code", "d", CHAR, -1, False, 0, False, "app", None),
    CODES: (CODES, "codes", "d", CODE, -1, False, 0, False, "app", None),
    FILLED: (FILLED, "filled", "d", CHAR, 9, False, 0, False, "app", None),
    ENUM: (ENUM, "mood", "e", 0, -1, False, 0, False, "app", ["sad", "glad"]),
}
# What Postgres finds beside a type that it is asked for.
MADE_OF = {DOMAIN: [INT], ARRAY: [TEXT], MONEYS: [MONEY], BOX: [PRICE]}
MADE_OF |= {CODE: [CHAR], CODES: [CODE, CHAR], FILLED: [CHAR]}


def attribute(table: int, name: str, kind: int, number: int) -> tuple[Any, ...]:
    return (table, name, TYPE_ROWS[kind][1], kind, -1, False, number, False)


class Postgres:
    """Answers for tables whose keys are the first columns of theirs."""

    def __init__(self, *columns: tuple[Any, ...]) -> None:
        self.columns, self.asked = columns, list[tuple[str, list[int]]]()

    def execute(self, query: str, parameters: Sequence[list[int]]) -> list[tuple[Any, ...]]:
        (oids,) = parameters
        self.asked.append((query, list(oids)))
        if query == TYPES:
            return [TYPE_ROWS[one] for oid in oids for one in (oid, *MADE_OF.get(oid, []))]
        assert query in (COLUMNS, UNIQUE_COLUMNS)
        return [row for row in self.columns if row[0] in oids and (query == COLUMNS or row[6] == 1)]

    @property
    def types(self) -> list[list[int]]:
        return [oids for query, oids in self.asked if query == TYPES]


WIDE = [attribute(1, "id", DOMAIN, 1), attribute(1, "tags", ARRAY, 2), attribute(1, "mood", ENUM, 3)]


def test_only_keys_types_are_asked_for_where_only_keys_are_read() -> None:
    server: Any = Postgres(*WIDE, attribute(2, "id", DOMAIN, 1), attribute(2, "note", TEXT, 2))
    found = unique_columns(server, [1, 2])
    assert {table: [(one.name, one.base_type, one.nullable) for one in of] for table, of in found.items()} == {
        1: [("id", "int4", False)],
        2: [("id", "int4", False)],
    }
    assert server.types == [[DOMAIN]]


@pytest.mark.parametrize("oids", [[], [3]])
def test_no_type_is_asked_for_where_there_is_no_key(oids: list[int]) -> None:
    server: Any = Postgres(*WIDE)
    assert unique_columns(server, oids) == {} and server.types == []


def test_domains_arrays_and_enums_are_looked_through_where_all_columns_are_read() -> None:
    server: Any = Postgres(*WIDE)
    (of,) = catalogue._columns(server, COLUMNS, [1]).values()
    assert [(one.name, one.base_type, one.array, one.enum_values) for one in of] == [
        ("id", "int4", False, None),
        ("tags", "text", True, None),
        ("mood", "mood", False, ("sad", "glad")),
    ]
    assert server.types == [sorted([DOMAIN, ARRAY, ENUM])]


def test_a_type_of_a_user_s_own_is_not_taken_for_the_one_that_it_is_called_like() -> None:
    """A composite `app.money` was read as Postgres's money: nonsense in the sinks, and `verify` ended with an error."""
    kinds = (MONEY, MONEYS, BOX, JSON, PRICE, INT)
    server: Any = Postgres(*(attribute(1, str(kind), kind, at) for at, kind in enumerate(kinds)))
    (of,) = catalogue._columns(server, COLUMNS, [1]).values()
    assert [one.base_type for one in of] == ["app.money", "app.money", "price", "my app.json", "price", "int4"]
    money, moneys, _, json, price, _ = of
    jsons = replace(json, array=True, type_name='"my app"."json"[]')
    for one, bare in ((money, "money"), (moneys, "money"), (jsons, "json")):
        assert f"takes {one.base_type} for the {bare} that it knows" in str(unsupported(one))
    assert unsupported(json) is unsupported(price) is None
    assert expected(json, "{}") == "{}" and "::numeric" not in select_expression(money)


def test_a_domain_over_text_whose_blanks_do_not_count_joins_nothing() -> None:
    """`'ab '` and `'ab'` are equal in Postgres; here they found no row, and ``verify`` called that different."""
    columns = [attribute(1, str(kind), kind, at) for at, kind in enumerate((CHAR, CODE, CODES, FILLED), 1)]
    columns.append((1, "char", "character(5)", CHAR, 9, False, 5, False))
    server: Any = Postgres(*columns)
    (of,) = catalogue._columns(server, COLUMNS, [1]).values()
    assert [one.base_type for one in of] == ["bpchar"] * 5
    *loose, filled, char = of
    for one in loose:
        assert "blanks at its end do not count in Postgres" in str(not_joined(one, one)), one
        assert not_counted(one) is not None
    assert not_joined(filled, filled) is not_joined(char, char) is not_counted(filled) is None
    stored = Catalogue({"public.t": Table("public", "t", tuple(of))}).to_json()
    kept = Catalogue.from_json(stored).tables["public.t"].columns
    assert [one.unpadded for one in kept] == [True, True, True, False, False]
    assert stored.count("unpadded") == 3, "an older Headwater refuses what it does not know: only where it must be said"
