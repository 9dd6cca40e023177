"""How an error reads, and what is taken out of it again."""

from __future__ import annotations

import pytest

from cdc.errors import StateError
from cdc.wording import split, worded

WHOLE = "the slot is gone\n  what it means: changes were missed\n  what to do: `headwater apply FILE`"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "it broke"),
        ({"fix": "mend it"}, "it broke\n  what to do: mend it"),
        ({"means": "no data"}, "it broke\n  what it means: no data"),
        ({"means": "no data", "fix": "mend it"}, "it broke\n  what it means: no data\n  what to do: mend it"),
    ],
)
def test_what_an_error_says_is_the_text_of_its_parts(parts: dict[str, str], text: str) -> None:
    assert worded("it broke", **parts) == str(StateError("it broke", **parts)) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (WHOLE, ("the slot is gone", "`headwater apply FILE`")),
        (f"\n{WHOLE}\n", ("the slot is gone", "`headwater apply FILE`")),
        (f"{WHOLE}\nanother\n  what to do: this", ("the slot is gone", "this")),
        ("nobody's\nwords", ("nobody's", "")),
        ("", ("", "")),
        (None, ("", "")),
    ],
)
def test_the_first_line_and_the_last_way_out_are_found_again(text: str | None, parts: tuple[str, str]) -> None:
    assert split(text) == parts
