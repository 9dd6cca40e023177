"""Tables of history, made and made again by Spark in an Iceberg catalogue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.catalogue import Column, Table
from cdc.view import View
from sinks.iceberg.history import KEY
from spark.warehouse.history_tables import HistoryPlace, properties_of
from tests.support.plain_spark import lake_session

# PySpark leaves the sockets that rows come through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
COLUMNS = (Column("id", "int4", "int4", ordinal=1), Column("branch", "int4", "int4", ordinal=2))


def test_a_history_keeps_the_key_that_its_rows_have_had(tmp_path: Path) -> None:
    """Opened between another key and ``apply`` it took that one for its own, and was refused for good afterwards."""
    place = HistoryPlace("hw_lake", "n", "source", 1)
    with lake_session(tmp_path) as spark:
        for key in (("id",), ("id", "branch")):
            view = View.identity(Table("public", "t", COLUMNS, key))
            place.make(spark, view, new=key == ("id",))
        assert json.loads(properties_of(spark, place.name(view))[KEY]) == ["id"]
