"""A migration is tried out statement by statement; none may end the transaction that it is tried in."""

from __future__ import annotations

import pytest

from operations.schema.statements import controls_transaction, statements, unframed


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


def framed(sql: str) -> list[str]:
    return [text.strip() for _, text, _ in unframed(list(statements(sql)))]


def test_the_one_transaction_around_all_of_it_is_taken_off() -> None:
    django = "BEGIN;\n--\n-- Add field rank\n--\nALTER TABLE t ADD rank int;\nCOMMIT;\n"
    assert [text.rpartition("\n")[2] for text in framed(django)] == ["ALTER TABLE t ADD rank int"]
    assert framed("start transaction; SELECT 1; SELECT 2; END WORK") == ["SELECT 1", "SELECT 2"]
    for sql in (
        "BEGIN; SELECT 1",
        "SELECT 1; COMMIT",
        "BEGIN; SELECT 1; COMMIT AND CHAIN",
        "COMMIT",
        "BEGIN; SELECT 1; ROLLBACK",
    ):
        assert framed(sql) == texts(sql), sql
    inside = framed("BEGIN; SELECT 1; COMMIT; SELECT 2; BEGIN; SELECT 3; COMMIT")
    assert inside[1:4:2] == ["COMMIT", "BEGIN"], "which is refused"
