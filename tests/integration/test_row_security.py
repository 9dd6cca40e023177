"""Row-level security: a row that a policy hides is never taken for one that is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from cdc.errors import MayNotRead, SourceError
from cdc.pipeline import Source
from connectors.postgres import connect
from connectors.snapshots.absent_keys import KeyCheck
from connectors.survey import survey
from connectors.tables.catalogue import read_catalogue
from connectors.tables.facts import read_facts
from connectors.tables.row_security import hidden_tables
from operations.preview.asked import Asked
from operations.preview.previewer import Previewer
from tests.support.servers import servers
from tests.support.source import SourceDatabase, source_database
from truth.rows import read_rows, snapshot

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def database() -> Iterator[SourceDatabase]:
    local = servers()
    local.up(["postgres"])
    with source_database(local.endpoints) as made:
        yield made
        made.pipelines.clear()  # nothing was applied


@pytest.fixture
def tenants(database: SourceDatabase) -> SourceDatabase:
    """Rows of the replication role and of another, which a policy hides from it."""
    database.execute(
        "DROP TABLE IF EXISTS rls, open",
        "CREATE TABLE rls (id int PRIMARY KEY, tenant text)",
        "CREATE TABLE open (id int PRIMARY KEY)",
        "ALTER TABLE rls ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON rls USING (tenant = current_user)",
        f"INSERT INTO rls VALUES (1, '{database.replicator}'), (2, 'somebody'), (3, 'else')",
        "INSERT INTO open VALUES (1)",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {database.replicator}",
    )
    return database


def rows(source: Source, name: str) -> list[str]:
    with connect(source) as connection:
        table = read_catalogue(connection, [name]).tables[name]
    with snapshot(source) as connection:
        return sorted(row["id"] or "" for page in read_rows(connection, table) for row in page)


def warned(database: SourceDatabase) -> bool:
    with database.connect() as connection:
        return read_facts(connection, ["public.rls"], database.replicator)["public.rls"].row_security


def test_hidden_rows_are_an_error_where_sinks_are_compared(tenants: SourceDatabase) -> None:
    """`verify` called a sink equal that lacked them, and one that had them wrong."""
    source = tenants.pipeline("public.rls").source
    with pytest.raises(SourceError, match=f"as {tenants.replicator}: row-level security would hide rows") as caught:
        rows(source, "public.rls")
    assert "BYPASSRLS" in caught.value.fix and "GRANT SELECT" not in caught.value.fix
    assert rows(source, "public.open") == ["1"]
    assert warned(tenants)


def test_rows_are_compared_where_a_policy_shows_all(tenants: SourceDatabase) -> None:
    source = tenants.pipeline("public.rls").source
    tenants.execute(f"CREATE POLICY every ON rls FOR SELECT TO {tenants.replicator} USING (true)")
    assert rows(source, "public.rls") == ["1", "2", "3"] and not warned(tenants)
    tenants.execute("CREATE POLICY less ON rls AS RESTRICTIVE USING (id > 1)")
    assert warned(tenants)
    with pytest.raises(SourceError, match="row-level security would hide rows"):
        rows(source, "public.rls")
    tenants.execute("DROP POLICY less ON rls", "DROP POLICY every ON rls")
    tenants.execute(f"CREATE POLICY every ON rls FOR SELECT TO {tenants.owner} USING (true)")
    assert warned(tenants)


def test_rows_are_compared_by_a_role_that_no_policy_holds_for(tenants: SourceDatabase) -> None:
    source = tenants.pipeline("public.rls").source
    owner = source.model_copy(update={"user": tenants.owner, "password": SecretStr(tenants.password)})
    assert rows(owner, "public.rls") == ["1", "2", "3"]
    tenants.execute("ALTER TABLE rls FORCE ROW LEVEL SECURITY")
    with pytest.raises(SourceError, match="row-level security would hide rows"):
        rows(owner, "public.rls")
    with tenants.connect("superuser") as connection:
        connection.execute(f"ALTER ROLE {tenants.replicator} BYPASSRLS")
        assert rows(source, "public.rls") == ["1", "2", "3"]
        connection.execute(f"ALTER ROLE {tenants.replicator} NOBYPASSRLS")


def test_missed_deletes_are_looked_for_where_a_policy_shows_all_to_the_owner(tenants: SourceDatabase) -> None:
    """Under FORCE such a table could never be swept: Postgres that is set to refuse refuses it as well."""
    source = tenants.pipeline("public.rls").source
    tenants.execute("ALTER TABLE rls FORCE ROW LEVEL SECURITY")
    both = ["public.open", "public.rls"]
    with connect(source, setup=True) as connection:
        check = KeyCheck(connection, read_catalogue(connection, ["public.rls"]).tables["public.rls"])
        assert hidden_tables(connection, both, tenants.owner) == ["public.rls"]
        with pytest.raises(SourceError, match="row-level security would hide rows"):
            check.absent([b'{"id":2}'])
        tenants.execute(f"CREATE POLICY every ON rls FOR SELECT TO {tenants.owner} USING (true)")
        assert hidden_tables(connection, both, tenants.owner) == []
        assert check.absent([b'{"id":2}', b'{"id":9}']) == [b'{"id":9}'] and check.any_row()


def test_preview_blames_no_grant(tenants: SourceDatabase) -> None:
    """It would have said that `apply` grants what is missing, and read as the owner."""
    pipeline = tenants.pipeline("public.rls")
    with pytest.raises(SourceError, match="row-level security would hide rows") as caught:
        Previewer(lambda line: None).report(pipeline, "any", Asked())
    assert not isinstance(caught.value, MayNotRead)


def test_init_tells_whoever_asks(tenants: SourceDatabase) -> None:
    """Of a table that one owns, and to a superuser, it said nothing: neither need be who replicates."""
    for role in (None, "superuser"):
        with tenants.connect(role) as connection:
            notes = {note.name: note.why for note in survey(connection, (), "headwater").notes}
        assert "row-level security is on" in notes["public.rls"] and "public.open" not in notes
