"""SQL that messages give to be run: Postgres must read the names that are meant."""

from __future__ import annotations

import pytest

from cdc.sql_names import sql_name, sql_table


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("orders", "orders"),
        ("order", '"order"'),
        ("Order", '"Order"'),
        ("a b", '"a b"'),
        ('x"y', '"x""y"'),
        ("ümlaut", '"ümlaut"'),
        ("1st", '"1st"'),
    ],
)
def test_a_name(name: str, written: str) -> None:
    assert sql_name(name) == written


def test_a_table() -> None:
    assert sql_table("public.orders") == "public.orders"
    assert sql_table("HelpDesk.Ticket.old") == '"HelpDesk"."Ticket.old"'
