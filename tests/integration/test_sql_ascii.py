"""A database in SQL_ASCII, which initdb makes under LC_ALL=C: texts are bytes that nobody has looked at."""

from __future__ import annotations

import pytest
from psycopg import sql

from cdc.errors import SourceError
from connectors.apply import apply
from connectors.postgres import connect
from connectors.preflight import preflight
from connectors.snapshots.snapshot import wait_snapshot
from connectors.tables.catalogue import read_catalogue
from tests.support.source import SourceDatabase, eventually
from truth.rows import read_rows, snapshot

pytestmark = pytest.mark.stack


def unlabelled(source: SourceDatabase) -> None:
    """The same database, empty, in that encoding."""
    with source.connect("superuser", "postgres") as connection:
        name, owner = sql.Identifier(source.name), sql.Identifier(source.owner)
        aside = sql.Identifier(f"{source.name}_aside")
        provider = "LOCALE_PROVIDER libc" if connection.info.server_version >= 150000 else ""
        create = f"CREATE DATABASE {{}} OWNER {{}} ENCODING 'SQL_ASCII' TEMPLATE template0 {provider} LOCALE 'C'"
        connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(name, aside))
        try:
            connection.execute(sql.SQL(create).format(name, owner))
        except Exception:
            connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(aside, name))
            raise
        connection.execute(sql.SQL("DROP DATABASE {}").format(aside))


def said(code: str) -> str:
    """A text of these bytes, whatever the session's encoding."""
    return f"convert_from('\\x{code}', 'SQL_ASCII')"


def test_texts_in_utf8_flow_and_others_are_told(source: SourceDatabase) -> None:
    """Names and settings came as bytes: `check` said that wal_level is b'logical', and then ended in an error of ours,
    as `apply` did."""
    unlabelled(source)
    source.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", f"INSERT INTO t VALUES (1, {said('c3a9')})")
    pipeline = source.pipeline("public.t")
    answers = {answer.check.name: answer for answer in preflight(pipeline)}
    assert [finding.about for finding in answers["server"].findings] == [f"database {source.name}"]
    assert "SQL_ASCII" in answers["server"].findings[0].message
    assert {name: told.state for name, told in answers.items() if told.state in ("error", "unknown")} == {}
    apply(pipeline)
    assert wait_snapshot(pipeline, seconds=90).done
    source.execute(f"INSERT INTO t VALUES (2, {said('c3a9')})")
    topic = pipeline.topic("public.t")
    assert eventually(lambda: len(source.latest(topic)) == 2, 30)
    assert [row["v"] for row in source.latest(topic).values() if row] == ["é", "é"]
    with connect(pipeline.source) as connection:
        table = read_catalogue(connection, ["public.t"]).tables["public.t"]
    source.execute(f"INSERT INTO t VALUES (3, {said('e9')})")
    with pytest.raises(SourceError, match="is not UTF-8"), snapshot(pipeline.source) as connection:
        list(read_rows(connection, table))
