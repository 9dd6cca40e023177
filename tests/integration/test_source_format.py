"""The list of captured tables carries the number of its form, for itself and for the topics made as it says."""

from __future__ import annotations

import pytest

from cdc.errors import NewerFormat
from cdc.formats import SOURCE, from_comment
from connectors.apply import apply, plan_pipeline
from connectors.captured.captured import read_captured
from connectors.names import Names
from connectors.preflight import preflight
from connectors.resnapshot import Wish, read_anew, resnapshot
from connectors.servers import open_servers
from connectors.snapshots.snapshot import wait_snapshot
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack


def comment(source: SourceDatabase, names: Names, words: str | None) -> None:
    said = "NULL" if words is None else f"'{words}'"
    with source.connect("superuser") as connection:
        connection.execute(f'COMMENT ON TABLE {names.schema}."{names.captured}" IS {said}')


def number(source: SourceDatabase, names: Names) -> int | None:
    found = source.rows(f"SELECT obj_description('{names.schema}.{names.captured}'::regclass)")
    return from_comment(found[0][0])


def test_older_ones_get_a_number_and_newer_ones_are_refused(source: SourceDatabase) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY, v text)", "INSERT INTO a VALUES (1, 'one')")
    pipeline = source.pipeline("public.a")
    names = Names.of(pipeline)
    apply(pipeline)
    assert number(source, names) == SOURCE and plan_pipeline(pipeline) == []
    comment(source, names, None)
    (action,) = plan_pipeline(pipeline)
    assert (action.kind, action.detail) == ("table", f"note its format ({SOURCE})")
    comment(source, names, "the words of somebody else")
    apply(pipeline)
    assert number(source, names) == SOURCE and plan_pipeline(pipeline) == []
    comment(source, names, f"(headwater format {SOURCE + 1})")
    try:
        for verb in (plan_pipeline, apply, lambda one: resnapshot(one, Wish(["public.a"]))):
            with pytest.raises(NewerFormat, match=f"the capture of pipeline {source.name} .*newer Headwater"):
                verb(pipeline)
        assert any("newer Headwater" in str(answer) for answer in preflight(pipeline))
    finally:
        comment(source, names, f"(headwater format {SOURCE})")


def test_a_list_without_the_newest_column_is_read_and_gets_it(source: SourceDatabase) -> None:
    """As an older version has made it, with a `run` of this one that reads a table anew before anybody applies."""
    source.execute("CREATE TABLE a (id int PRIMARY KEY, v text)", "INSERT INTO a VALUES (1, 'one')")
    pipeline = source.pipeline("public.a")
    names = Names.of(pipeline)
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    with source.connect("superuser") as connection:
        connection.execute(f'ALTER TABLE {names.schema}."{names.captured}" DROP COLUMN begins')
    read_anew(pipeline, {"public.a": ""})
    assert wait_snapshot(pipeline, seconds=90).done
    (action,) = plan_pipeline(pipeline)
    assert action.kind == "table" and "begins" in str(action.after)
    apply(pipeline)
    assert plan_pipeline(pipeline) == []
    resnapshot(pipeline, Wish(["public.a"]))
    assert wait_snapshot(pipeline, seconds=90).done
    with open_servers(pipeline) as servers:
        assert read_captured(servers.setup, names)["public.a"].topic_id is not None
