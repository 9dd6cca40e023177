"""Tables of history, made and made again by Spark in an Iceberg catalogue."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cdc.catalogue import Column, Table
from cdc.view import View
from sinks.iceberg.history import BEGINS, KEY
from spark.flow import Flow
from spark.warehouse import history
from spark.warehouse.history_tables import HistoryPlace, columns_there, properties_of
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


@pytest.mark.parametrize("killed", [False, True])
def test_a_history_whose_key_gets_another_type_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Its column was put aside: the key of all rows of before was null, so that each earlier cut showed one row of
    them, and each later one a row that was gone."""
    place = HistoryPlace("hw_lake", f"anew_{killed}", "source", 1)
    as_int = Table("public", "t", COLUMNS, ("id",))
    text = replace(as_int, columns=(Column("id", "text", "text", ordinal=1), COLUMNS[1]), since=500)
    (tmp_path / history.BEGUN).write_text('{"topics": ["p.t", "p.u"]}')

    def start(table: Table) -> None:
        view = View.identity(table, "t")
        spec = SimpleNamespace(sink="w", topics={"p.t": ("t",)}, views={"t": view})
        history._put_aside(spark, cast(Flow, SimpleNamespace(folder=tmp_path, spec=spec)), place)
        place.make(spark, view, new=False)

    with lake_session(tmp_path) as spark:
        start(as_int)
        assert BEGINS not in properties_of(spark, place.name(View.identity(as_int)))
        place.make(spark, View.identity(as_int), new=True)
        spark.sql(f"INSERT INTO {place.name(View.identity(as_int))} (id, _hw_op) VALUES (1, 'insert'), (2, 'insert')")
        begun = json.loads((tmp_path / history.BEGUN).read_text())
        assert begun == {"topics": ["p.t", "p.u"]}
        if killed:
            with monkeypatch.context() as cut, pytest.raises(RuntimeError):
                cut.setattr(HistoryPlace, "make", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("killed")))
                start(text)
        for _ in range(2):  # a start that finds it done leaves it
            start(text)
        assert json.loads((tmp_path / history.BEGUN).read_text()) == {"topics": ["p.u"]}
        name = place.name(View.identity(text))
        assert columns_there(spark, name)["id"] == "string" and spark.table(name).isEmpty()
        assert place.begins(spark, View.identity(text)) == 500
        former = name.replace("_history", "_history_by_id")
        assert [row["id"] for row in spark.table(former).orderBy("id").collect()] == [1, 2]
        assert "id__int" not in columns_there(spark, former)
        assert spark.table(name.replace("_history", "_versions")).isEmpty()
        tables = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN hw_lake.anew_{killed}").collect()}
        assert tables == {"t_history", "t_history_by_id"}
