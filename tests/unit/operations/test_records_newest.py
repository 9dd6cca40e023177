"""Which records are about some documents: told by the bytes of their keys, where these are written in one way only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from operations.records.newest import Asked

BEYOND = [str(1 << 63), str(-(1 << 63) - 1), "007"]


@pytest.mark.parametrize("number", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_the_records_of_every_number_that_a_key_can_be_are_found(number: int) -> None:
    """Of one that is passed over a repair says that the log does not have the row."""
    column = SimpleNamespace(name="id", array=False, base_type="int8")
    table = SimpleNamespace(primary_key=("id",), by_name={"id": column})
    view: Any = SimpleNamespace(topics=(), key=("id",), table=table)
    asked = Asked(cast(Any, None), view, "t", [str(number), *BEYOND])
    for key, ours in ((f'{{"id":{number}}}', True), ('{"id":5}', False), ('{"id":7}', False)):
        assert asked(SimpleNamespace(key=key.encode(), value=b"")) is ours  # type: ignore[arg-type]
