"""A migration is tried out statement by statement; none may end the transaction that it is tried in."""

from __future__ import annotations

import pytest

from operations.schema.statements import controls_transaction, statements


def texts(sql: str) -> list[str]:
    return [text.strip() for _, text, _ in statements(sql)]


def test_a_file_without_an_end_and_empty_statements() -> None:
    assert texts(";; SELECT 1 ;\n\n; SELECT 2 -- and no end") == ["SELECT 1", "SELECT 2 -- and no end"]
    assert texts("-- nothing; at all\n/* ; */ ;") == []


@pytest.mark.parametrize(
    "one",
    [
        "SELECT ';', \"a;b\", E'\\';', 'it''s; '",
        "DO $$ BEGIN PERFORM 1; COMMIT; END $$",
        "DO $a$ $b$; $$ ; $a$",
        "SELECT 1 /* ; /* ; */ ; */ + 1 -- ;\n+ 2",
        "CREATE RULE r AS ON DELETE TO t DO ALSO (INSERT INTO u VALUES (1); DELETE FROM v)",
        "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
        "SELECT a$b$c",
    ],
)
def test_semicolons_that_end_nothing(one: str) -> None:
    assert texts(f"{one}; SELECT 1") == [one, "SELECT 1"]


def test_lines_are_told() -> None:
    assert [line for line, _, _ in statements("-- head\nSELECT 1;\n\n/* \n */ SELECT 2;")] == [2, 5]


@pytest.mark.parametrize(
    "sql",
    [
        *("COMMIT", "end work", "/* a */ -- b\n Commit AND CHAIN", "BEGIN", "START TRANSACTION", "ROLLBACK TO a"),
        *("ABORT", "SAVEPOINT a", "RELEASE a", "PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'", "END"),
    ],
)
def test_what_begins_or_ends_a_transaction_is_known(sql: str) -> None:
    ((_, _, words),) = statements(sql)
    assert controls_transaction(words)


def test_what_does_not() -> None:
    for sql in ("ALTER TABLE t ADD begin int", "PREPARE p AS SELECT 1", "SET search_path = x", "DO $$ BEGIN END $$"):
        ((_, _, words),) = statements(sql)
        assert not controls_transaction(words), sql
