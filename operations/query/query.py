"""``headwater query``: SQL over the warehouse's tables as they were committed, or with what the log has besides.

Docs: docs/decisions/fresh-queries.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

import pyarrow as pa

from cdc.catalogue import Table
from cdc.errors import ConfigError, HeadwaterError, QueryRefused, ShapeUnknown
from cdc.pipeline import Pipeline
from cdc.token import WriteToken
from operations.query.answer import Answer, Told
from operations.query.complete import together
from operations.query.duck import Duck, quoted, scan_of
from operations.query.histories import is_past, open_past, past_tables, refuse_fresh
from operations.query.log import LogSide, opened_views
from operations.query.statement import Statement, checked
from operations.query.tables import Name, chosen, held, is_local, names, view_names, warehouses, whole
from operations.query.uniting import GONE, WINS, key_columns, united
from operations.state.history import history_sinks
from sinks.iceberg.storage import location

LIMIT, SECONDS = 1_000, 60.0


class Queries:
    """Answers queries over a pipeline's warehouses; what it opens stays open. One query at a time, whoever asks.

    Args:
        pipeline: the loaded file.
        only: these sinks; all warehouses if empty.

    Raises:
        QueryRefused: there is no such warehouse (terminal).
        ConfigError: DuckDB is not installed.
    """

    def __init__(self, pipeline: Pipeline, only: Collection[str] = ()) -> None:
        self.pipeline, self.sinks = pipeline, warehouses(pipeline, only)
        folders = {location(part.warehouse) for part in self.sinks.values()}
        self._duck = Duck(sorted(folder for folder in folders if is_local(folder)))
        self._log, self._lock = LogSide(pipeline), threading.Lock()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            self._log.close()
            self._duck.close()

    def run(
        self,
        text: str,
        *,
        fresh: bool = False,
        at_least: WriteToken | None = None,
        limit: int = LIMIT,
        seconds: float = SECONDS,
    ) -> Answer:
        """Run one statement that reads.

        Args:
            text: SQL as DuckDB has it.
            fresh: also read what the log has and the tables have not.
            at_least: a write that the log must hold before it is read; ``fresh`` goes without saying then.
            limit: rows to give at the most.
            seconds: how long all of it may take.

        Raises:
            QueryRefused: it does not read, or is wrong, or its tables can't be asked so (terminal).
            QueryTooLarge: it takes more time, memory or log than it may (terminal).
            SinkRefused, SinkUnavailable, KafkaUnavailable, SourceError: what is needed is not there.
        """
        began = time.monotonic()
        until = began + seconds
        with self._lock:
            statement = checked(self._duck.connection, text, self._columns)
            if at_least is not None:
                self._log.await_write(at_least, until)
            pasts = self._pasts(statement)
            all_of = names({sink: [*view_names(self.pipeline, sink), *pasts.get(sink, ())] for sink in self.sinks})
            told = self._told(statement, all_of, pasts, until, fresh=fresh or at_least is not None)
            put = list[str]()
            try:
                for one in told:
                    self._show(one, put, empty=statement.lists)
                left = max(until - time.monotonic(), 0.1)
                found = self._duck.run(statement.text, limit, left, self._listed(all_of, pasts))
            finally:
                self._duck.forget(put)
        as_of = together([one.as_of for one in told])
        return Answer(found, fresh or at_least is not None, told, as_of, time.monotonic() - began)

    def _columns(self) -> list[str]:
        """Of all tables, as far as they are known: a message goes without them where Postgres does not answer."""
        with suppress(HeadwaterError):
            return [column.name for table in self._log.catalogue().tables.values() for column in table.columns]
        return []

    def _pasts(self, statement: Statement) -> dict[str, Mapping[str, Table]]:
        """What names histories have, if the statement may ask for one."""
        if not statement.lists and not any(is_past(table) for _, table in statement.named):
            return {}
        return past_tables(self.pipeline, self._log.catalogue(), self.sinks)

    def _listed(self, all_of: list[Name], pasts: Mapping[str, Mapping[str, Table]]) -> str:
        """What there is, for a name that is not there."""
        more = [] if pasts or not history_sinks(self.pipeline, list(self.sinks)) else ["and <table>_history, _versions"]
        return ", ".join([one.shown for one in all_of] + more)

    def _told(
        self,
        statement: Statement,
        all_of: list[Name],
        pasts: Mapping[str, Mapping[str, Table]],
        until: float,
        *,
        fresh: bool,
    ) -> list[Told]:
        """The tables first, then the log's ends: what a table holds lies below them then."""
        wanted = all_of if statement.lists else chosen(all_of, statement.named)
        histories = [one for one in wanted if one.view in pasts.get(one.sink, ())]
        tables = held(self.pipeline, [one for one in wanted if one not in histories], all_there=not statement.lists)
        if fresh and not statement.lists:
            refuse_fresh(histories)
        past = self._log.past(open_past(self.pipeline, histories, pasts, all_there=not statement.lists))
        for anew in (False, True):
            try:
                catalogue = self._log.catalogue(anew=anew)
                opened = opened_views(self.pipeline, catalogue, tables)
                if fresh and not statement.lists:
                    return self._log.fresh(opened, catalogue, until)
                return [*self._log.told(opened), *past]
            except QueryRefused:
                raise
            except (ShapeUnknown, ConfigError):  # a table was changed, and what is known of it here is older than that
                if anew:
                    raise
        raise AssertionError("the second look returns or raises")

    def _show(self, told: Told, put: list[str], *, empty: bool) -> None:
        """Let a table be read under its name, without its rows if they are not asked for; what is put into DuckDB for
        that is noted."""
        one, number = told.held, len(put)
        if is_local(one.metadata):
            rows = scan_of(one.metadata)
        else:
            there = one.table.schema().as_arrow().empty_table() if empty else whole(one)
            rows = self._put(f"hw_whole_{number}", there, put)
        if told.tail is not None and told.view is not None and told.tail.rows.num_rows:
            tail = self._put(f"hw_tail_{number}", told.tail.rows, put)
            columns = [name for name in told.tail.rows.column_names if name not in (GONE, WINS)]
            keys = key_columns(told.view, one.columns, one.table.properties)
            floats = [one.name for one in told.tail.rows.schema if one.name in keys and pa.types.is_floating(one.type)]
            rows = f"({united(rows, tail, keys, columns, floats)})"
        select = f"SELECT * FROM {rows}" if told.past is None else told.past.select(rows)  # noqa: S608 (names are quoted)
        self._duck.view(one.name.schema, one.name.view, select)

    def _put(self, name: str, table: pa.Table, put: list[str]) -> str:
        put.append(name)
        self._duck.put(name, table)
        return quoted(name)
