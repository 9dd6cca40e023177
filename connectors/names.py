"""Names of what Headwater keeps in the source database and in Kafka for one pipeline; nothing else may be touched.

Every name carries the pipeline's, so that two pipelines on one database share nothing but the helper schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from cdc.pipeline import Pipeline


@dataclass(frozen=True)
class Names:
    """Names for one pipeline. All are at most 63 bytes because a pipeline's name has at most 40."""

    schema: str
    name: str

    @classmethod
    def of(cls, pipeline: Pipeline) -> Names:
        """The names of ``pipeline``."""
        return cls(pipeline.source.schema_, pipeline.name)

    @property
    def heartbeat(self) -> str:
        """Table of one row that Debezium updates, so that the slot moves while the captured tables are idle."""
        return f"heartbeat_{self.name}"

    @property
    def signal(self) -> str:
        """Table into which Debezium writes the watermarks of an incremental snapshot."""
        return f"signal_{self.name}"

    @property
    def marker(self) -> str:
        """Table of one row that never changes: its snapshot record tells the position of the initial snapshot."""
        return f"snapshot_{self.name}"

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables of ours."""
        return (self.heartbeat, self.signal, self.marker, self.captured, self.witness, self.life)

    @property
    def published(self) -> list[str]:
        """Those of ours that the publication sends, as ``schema.table``."""
        return [self.qualified(table) for table in (self.heartbeat, self.signal, self.marker)]

    @property
    def publication(self) -> str:
        """The publication, unless the file names another one."""
        return f"headwater_{self.name}"

    @property
    def captured(self) -> str:
        """Table that remembers how each captured table was, or is to be, snapshotted."""
        return f"captured_{self.name}"

    @property
    def witness(self) -> str:
        """Table in which runners leave numbers, by which they notice a database that was put back to a copy."""
        return f"witness_{self.name}"

    @property
    def life(self) -> str:
        """Unlogged table of one number, which a crash of the server, or a copy of it, does not keep."""
        return f"life_{self.name}"

    @property
    def token_function(self) -> str:
        """Function that gives an application a token of its write."""
        return f"token_{self.name}"

    @property
    def truncate_function(self) -> str:
        """Function behind the truncate triggers."""
        return f"on_truncate_{self.name}"

    @property
    def truncate_trigger(self) -> str:
        """Trigger on every captured table; Postgres fires triggers in order of name, and this one should be first."""
        return f"headwater_{self.name}_truncate"

    def qualified(self, table: str) -> str:
        """``schema.table`` of one of ours, unquoted."""
        return f"{self.schema}.{table}"

    def identifier(self, table: str) -> sql.Identifier:
        """One of ours, quoted."""
        return sql.Identifier(self.schema, table)


def identifier(qualified: str) -> sql.Identifier:
    """A captured table, quoted; its schema ends at the first dot."""
    schema, _, table = qualified.partition(".")
    return sql.Identifier(schema, table)
