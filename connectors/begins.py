"""Where the topics of captured tables begin, as the list of them remembers it (``lost_records.py`` says what for)."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from psycopg import sql

from connectors.postgres import explained, has_column

if TYPE_CHECKING:
    from connectors.servers import Servers


class Begins:
    """The first offsets of tables' topics when the tables are about to be read whole; asked for once, of all.

    Args:
        tables: ``schema.table``.
    """

    def __init__(self, tables: Collection[str]) -> None:
        self._tables = tables
        self._first: dict[str, dict[int, int]] | None = None

    def of(self, servers: Servers, table: str) -> str:
        """JSON of partition -> first offset, where that is not 0: what is lost later than now is lost.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        if self._first is None:
            names = [servers.pipeline.topic(table) for table in self._tables]
            counts = {topic.name: topic.partitions for topic in servers.kafka.describe(names).values()}
            self._first = servers.kafka.ends(counts, first=True)
        first = self._first.get(servers.pipeline.topic(table), {})
        return json.dumps({partition: at for partition, at in first.items() if at})

    def note(self, servers: Servers) -> None:
        """Remember them of tables that are in the list; not where an older version has made it, until the next apply.

        Raises:
            SourceError: Postgres refused (SourceUnavailable: transient).
            KafkaUnavailable: no answer (transient).
        """
        names = servers.names
        update = sql.SQL("UPDATE {} SET begins = %s::jsonb WHERE table_name = %s")
        with explained("noting where the captured tables' topics begin"):
            if not has_column(servers.setup, names.schema, names.captured, "begins"):
                return
            for table in self._tables:
                begins = self.of(servers, table)
                servers.setup.execute(update.format(names.identifier(names.captured)), [begins, table])
