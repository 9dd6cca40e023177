"""Where the topics of captured tables begin, as the list of them remembers it (``lost_records.py`` says what for)."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from psycopg import sql

from connectors.postgres import explained, has_columns

if TYPE_CHECKING:
    from connectors.servers import Servers


# Beside the partitions' numbers: the topic's own id.
TOPIC = "topic"


class Begins:
    """The ids and first offsets of tables' topics when the tables are about to be read whole; asked for once, of all.

    Args:
        tables: ``schema.table``.
    """

    def __init__(self, tables: Collection[str]) -> None:
        self._tables = tables
        self._first: dict[str, dict[int, int]] | None = None
        self._ids: dict[str, str] = {}

    def of(self, servers: Servers, table: str) -> str:
        """JSON of partition -> first offset, where that is not 0, and of the topic's id: what is lost later is lost.

        Raises:
            KafkaUnavailable: no answer (transient).
        """
        if self._first is None:
            names = [servers.pipeline.topic(table) for table in self._tables]
            topics = servers.kafka.describe(names).values()
            counts = {topic.name: topic.partitions for topic in topics}
            self._ids = servers.kafka.ids(counts)
            self._first = servers.kafka.ends(counts, first=True)
        name = servers.pipeline.topic(table)
        later = {str(partition): at for partition, at in self._first.get(name, {}).items() if at}
        return json.dumps({**later, TOPIC: self._ids.get(name)})

    def note(self, servers: Servers) -> None:
        """Remember them of tables that are in the list; not where an older version has made it, until the next apply.

        Raises:
            SourceError: Postgres refused (SourceUnavailable: transient).
            KafkaUnavailable: no answer (transient).
        """
        names = servers.names
        update = sql.SQL("UPDATE {} SET begins = %s::jsonb WHERE table_name = %s").format(
            names.identifier(names.captured)
        )
        with explained("noting where the captured tables' topics begin"):
            if not has_columns(servers.setup, names.schema, names.captured, "begins"):
                return
            with servers.setup.cursor() as cursor:
                cursor.executemany(update, [(self.of(servers, table), table) for table in self._tables])
