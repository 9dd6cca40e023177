"""A topic that was enlarged under a pipeline that was applied long ago: `run` and `status` say what `check` does."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import KafkaError
from connectors import resized as resizing
from connectors.topics import data_topics, plan_topics
from operations.status import source as source_status
from operations.status.source import SourceState, line
from tests.support.connector_cases import catalogue, pipeline


def test_of_a_captured_table_the_same_is_said_as_by_check(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (Column("id", "integer", "int4"),)
    wanted = data_topics(pipeline(), catalogue(*(Table("public", name, columns, ("id",)) for name in ("a", "b"))))
    actual = {topic.name: topic for topic in wanted} | {"flights.public.b": replace(wanted[1], partitions=6)}
    monkeypatch.setattr(resizing, "connect", lambda _: nullcontext())
    monkeypatch.setattr(resizing, "read_captured", lambda *_: dict.fromkeys(("public.a", "public.b", "public.gone")))
    monkeypatch.setattr(resizing, "Kafka", lambda *_: SimpleNamespace(describe=lambda names: actual))
    with pytest.raises(KafkaError) as error:
        plan_topics(wanted, actual)
    assert {table: str(said) for table, said in resizing.resized(pipeline()).items()} == {"public.b": str(error.value)}


def test_many_are_one_line() -> None:
    """Of a file whose number was changed each table had a line of its own, five hundred of them."""
    found = {f"s.t{n}": KafkaError(f"topic {n} has 5", means="m", fix="f") for n in range(9)}
    [line] = resizing.in_lines(found)
    assert line.startswith("s.t0, s.t1, s.t2 and 6 other tables: ") and line.endswith("topic 0 has 5: m; f")
    assert resizing.in_lines({table: found[table] for table in ("s.t1", "s.t2")}) == [
        "topic 1 has 5: m; f",
        "topic 2 has 5: m; f",
    ]


def test_status_tells_of_it_beside_a_tables_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    large = KafkaError("topic t has 5 partitions, the pipeline file says 3", means="two of them", fix="delete it")
    monkeypatch.setattr(source_status, "resized", lambda *_: {"public.a": large, "public.b": large})
    monkeypatch.setattr(source_status, "_tables", lambda _: {"public.b": "gone"})
    for name in ("_connector", "_slot", "_history"):
        monkeypatch.setattr(source_status, name, lambda _: None)
    source = SourceState(pipeline()).report()
    said = "topic t has 5 partitions, the pipeline file says 3: two of them; delete it"
    assert source["tables"] == {"public.a": said, "public.b": "gone"} and said in line(source)
