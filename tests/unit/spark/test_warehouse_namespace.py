"""A namespace that two flows make at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark.warehouse.table import create_namespace


def spark_that_fails(times: int) -> tuple[Any, list[str]]:
    asked: list[str] = []

    def sql(text: str) -> None:
        asked.append(text)
        if len(asked) <= times:
            raise RuntimeError("A PRIMARY KEY constraint failed")

    return cast(Any, SimpleNamespace(sql=sql)), asked


def test_who_was_later_looks_again() -> None:
    spark, asked = spark_that_fails(1)
    create_namespace(spark, "hw.shop")
    assert asked == ["CREATE NAMESPACE IF NOT EXISTS hw.shop"] * 2


def test_what_fails_twice_is_told() -> None:
    spark, _ = spark_that_fails(2)
    with pytest.raises(RuntimeError, match="constraint"):
        create_namespace(spark, "hw.shop")
