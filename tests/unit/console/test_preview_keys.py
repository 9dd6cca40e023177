"""A key that can be none of a view's, by its form, is told so."""

from __future__ import annotations

import re

import pytest

from cdc.view import View
from console.cli.preview import show_documents
from operations.no_key import no_key
from tests.support.trees import table

PATIENTS = View.identity(table("patients", "id", id="uuid", name="text"))
APPOINTMENTS = View.identity(table("appointments", "id", id="int8"))
LINES = View.identity(table("lines", "code line", code="text", line="int2"))


@pytest.mark.parametrize(
    ("view", "key", "said"),
    [
        (PATIENTS, "M7", "M7 is not a uuid, the type of public.patients.id"),
        (PATIENTS, "d5c9b1a0-0000-4000-8000-00000000000", "not a uuid"),
        (APPOINTMENTS, "abc", "abc is not an? int8, the type of public.appointments.id"),
        (APPOINTMENTS, str(2**63), "is not an? int8"),
        (LINES, "a|b", "b is not an? int2"),
        (LINES, "7", r"^7 has 1 part, and the key of public.lines 2: code\|line$"),
        (LINES, "a|7|7", "has 3 parts"),
    ],
)
def test_it_is_no_value_of_the_key_s_type(view: View, key: str, said: str) -> None:
    assert re.search(said, no_key(view, key) or "")


@pytest.mark.parametrize(
    ("view", "key"),
    [
        (PATIENTS, "D5C9B1A0-0000-4000-8000-000000000001"),
        (PATIENTS, "{d5c9b1a0000040008000000000000001}"),
        (APPOINTMENTS, " -7 "),
        (APPOINTMENTS, str(2**63 - 1)),
        (LINES, "a|7"),
    ],
)
def test_it_could_be_one(view: View, key: str) -> None:
    assert no_key(view, key) is None


def test_it_is_said_in_the_place_of_that_there_is_no_such_row(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"view": "patient", "root": "public.patients", "documents": [], "near": [], "seconds": 0.1}
    show_documents(report | {"not_a_key": no_key(PATIENTS, "M7")})
    said = capsys.readouterr().err
    assert "M7 is not a uuid" in said and "no such row" not in said
    show_documents(report | {"not_a_key": None})
    assert "no such row was found in public.patients" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("documents", "said"),
    [([{"a": 1}], "1 document in 0.10 s"), ([{"a": 1}, None, None], "1 document of 3 rows in 0.10 s")],
)
def test_rows_without_a_document_are_not_counted_as_one(
    documents: list[object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It closed with `3 documents`."""
    told = [{"key": str(key), "document": one, "why": "x"} for key, one in enumerate(documents)]
    show_documents({"view": "v", "root": "t", "documents": told, "near": [], "not_a_key": None, "seconds": 0.1})
    assert capsys.readouterr().err.strip() == said
