"""The row that is to be erased: which it is, that it is gone from the source, how its records are told."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError, RowInSource, SourceError
from cdc.log.registry import encoding_of
from cdc.outbox import is_outbox
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import Decoder
from cdc.resolve.versions import kept_versions
from cdc.saying import Say
from cdc.table_key import TableKey
from cdc.view import View
from connectors.postgres import connect
from operations.erase.spelling import spelled
from operations.records.newest import Asked
from operations.state.catalogue import captured_table, source_catalogue
from truth.rows import equal_keys, snapshot
from truth.unheld import has_sibling


@dataclass(frozen=True)
class Subject:
    """One row.

    Attributes:
        pipeline: the loaded file.
        catalogue: the captured tables.
        table: the row's.
        key: its key, as document ids have it.
        say: told a line when something takes long.
    """

    pipeline: Pipeline
    catalogue: Catalogue
    table: Table
    key: str = field(repr=False)
    say: Say

    @classmethod
    def of(cls, pipeline: Pipeline, table: str, key: str, say: Say) -> Subject:
        """Find the table, and how it writes the key.

        Raises:
            ConfigError: no such table is captured, or no row of it can have such a key (terminal).
            SourceUnavailable, SourceError: see ``connectors.postgres``.
        """
        catalogue = source_catalogue(pipeline)
        found = captured_table(catalogue, table)
        _refuse_events(pipeline, found)
        _refuse_versions(pipeline, catalogue, found)
        return cls(pipeline, catalogue, found, spelled(pipeline.source, found, key, say), say)

    @property
    def name(self) -> str:
        """``schema.table``."""
        return self.table.qualified

    @property
    def topic(self) -> str:
        """The table's."""
        return self.pipeline.topic(self.name)

    @property
    def view(self) -> View:
        """All columns of the table."""
        return View.identity(self.table)

    @property
    def held_key(self) -> str:
        """The key as columns of a warehouse's tables hold it: null where they have no place for a part."""
        return TableKey.of(self.view).as_held(self.key)

    def key_in_history(self) -> str | None:
        """The key by which a history's rows are the row's: of parts that its columns have no place for null, by which
        all rows with the same other parts are one row there (docs/sinks.md#history). None while another one of these
        is in the source: whose such events are nobody can tell. Asked anew each time, for a row may come meanwhile.

        Raises:
            SourceUnavailable, SourceError: see ``connectors.postgres``.
        """
        if self.held_key == self.key:
            return self.key
        with snapshot(self.pipeline.source) as connection:
            return None if has_sibling(connection, self.view, self.key) else self.held_key

    @property
    def digest(self) -> str:
        """What stands for the key where it is not to be told. Who knows the key can tell whether it is this one."""
        return hashlib.sha256(f"{self.name}|{self.key}".encode()).hexdigest()

    def asked(self) -> Asked:
        """Tells the row's records from others."""
        decoder = Decoder(self.table, encoding=encoding_of(self.pipeline.source.reader()))
        return Asked(decoder, self.view, self.topic, [self.key])

    def refuse_present(self) -> None:
        """Refuse a row that is in the source: by what Postgres takes for equal, for such a row's id may be another text
        than the given one.

        Raises:
            RowInSource: it is (terminal).
            SourceError: the address is a standby's, which may not know of it yet; or the role may not read the table.
            SourceUnavailable: no answer (transient).
        """
        with connect(self.pipeline.source) as connection:
            standby = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        if standby is None or standby[0]:
            raise SourceError(
                "source.host leads to a standby",
                means="it may lack rows that its primary has; nothing was erased",
                fix="point source.host at the primary",
            )
        with snapshot(self.pipeline.source) as connection:
            found = equal_keys(connection, self.view, self.key)
        if not found:
            return
        what, fix = f"the row of {self.name} is in the source", f"DELETE it from {self.name} first, then run this again"
        if self.key not in found:
            # Said, and not among what was refused: a certificate has no key unless that is asked for.
            self.say(f"{self.name} has a row whose key is equal to the given one, and writes it as {found[0]}")
            what = f"a row of {self.name} whose key is equal, in another spelling, is in the source"
            fix += ", with the key as that row wrote it"
        raise RowInSource(
            what,
            means="it would come back with its next change; nothing was erased",
            fix=fix,
        )


def _refuse_events(pipeline: Pipeline, table: Table) -> None:
    if is_outbox(pipeline, table.qualified):
        raise ConfigError(
            f"the rows of {table.qualified} are events, and their topics keep every record (they are not compacted)",
            means="nothing was erased: the sinks could forget the event, and the log would bring it back",
            fix="docs/erasure.md#events says what can be done; source.outbox.keep_days bounds how long events stay",
        )


def _refuse_versions(pipeline: Pipeline, catalogue: Catalogue, table: Table) -> None:
    shown = kept_versions(pipeline, catalogue).get(table.qualified, [])
    if shown:
        raise ConfigError(
            f"all versions of the rows of {table.qualified} are kept, for view{'s' * (len(shown) > 1)} "
            f"{', '.join(shown)} (`as_of`)",
            means="nothing was erased: documents show what the row was, and to compact its topic would forget what all "
            "other rows were",
            fix="docs/as-of-joins.md#erasing says what can be done",
        )
