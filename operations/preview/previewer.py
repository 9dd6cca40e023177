"""``headwater preview``: documents as a view makes them now, straight from Postgres, by the second opinion.

No Kafka, no sink, and no Spark unless the view has Spark SQL. The file may say what no `apply` has seen yet.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, MayNotRead, SourceError
from cdc.pipeline import Pipeline, Source
from cdc.resolve.names import near
from cdc.resolve.views import resolve_view, table_view
from cdc.saying import Say
from cdc.stateful import refuse_stateful
from cdc.types import merge_fields
from cdc.view import View
from connectors.postgres import Connection
from connectors.tables.catalogue import read_catalogue
from operations.no_key import no_key
from operations.preview.asked import Asked, keys_of, near_keys, within
from truth.expected import Expected, expected, needs_spark
from truth.rows import snapshot
from truth.values import exact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Made:
    """One document.

    Attributes:
        key: its id.
        text: as a sink of documents holds it; None if the view makes none.
        why: then, why not.
        found: what it was made of, for other forms of it.
    """

    key: str
    text: bytes | None
    why: str
    found: Expected


class Previewer:
    """Makes previews, and keeps between them what takes long: Spark's session, once it was needed.

    Args:
        say: told a line when something takes seconds.
    """

    def __init__(self, say: Say) -> None:
        self._say, self._stack = say, ExitStack()
        self._spark: SparkSession | None = None

    def __enter__(self) -> Previewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def report(self, pipeline: Pipeline, name: str, asked: Asked) -> dict[str, Any]:
        """The documents; the shape of ``preview --json``.

        Args:
            pipeline: the loaded file.
            name: the view's.
            asked: which documents.

        Raises:
            ConfigError: no such view, or it does not fit the tables, or Postgres refuses the condition; with the place
                in the file (terminal).
            SourceUnavailable, SourceError: Postgres does not answer, refuses, or took too long.
        """
        try:
            return self._report(pipeline, pipeline.source, name, asked)
        except MayNotRead as error:
            owner = _owner(pipeline.source)
            if owner is None or asked.where is not None:  # what somebody types is not run as the tables' owner
                raise
            self._say(f"{error.what}; reading as {owner.user}, until `headwater apply` grants it")
        return self._report(pipeline, owner, name, asked)

    def _report(self, pipeline: Pipeline, source: Source, name: str, asked: Asked) -> dict[str, Any]:
        began = time.monotonic()
        with snapshot(source) as connection:
            view = self.view(pipeline, name, connection)
            with within(connection, view):
                keys = keys_of(connection, view, asked)
                made = self.made(pipeline, view, connection, keys)
                near = near_keys(connection, view, asked.key) if asked.key is not None and not made else []
                wrong = no_key(view, asked.key) if asked.key is not None and not made else None
        return {
            "pipeline": pipeline.name,
            "at": time.time(),
            "view": view.name,
            "root": view.table.qualified,
            "documents": [{"key": one.key, "document": shown(one), "why": one.why} for one in made],
            "near": near,
            "not_a_key": wrong,
            "seconds": round(time.monotonic() - began, 3),
        }

    def view(self, pipeline: Pipeline, name: str, connection: Connection) -> View:
        """A view of the file, held against the tables as they are now, with its Spark SQL."""
        view = view_of(pipeline, name, connection)
        refuse_stateful(view, "previewed from Postgres")
        if needs_spark(view):
            self._analyse(pipeline, view)
        return view

    def made(self, pipeline: Pipeline, view: View, connection: Connection, keys: list[str]) -> list[Made]:
        """The documents of some keys, in the order of these; those whose row is not there are left out."""
        spark = self._session(pipeline, view) if needs_spark(view) else None
        found = {one.key: _made(view, one) for one in expected(view, connection, spark, keys, words=True)}
        return [found[key] for key in keys if key in found]

    def _analyse(self, pipeline: Pipeline, view: View) -> None:
        """Refuse expressions that Spark does not take, with their places."""
        spark = self._session(pipeline, view)
        from operations.run.flows import analysed_view

        analysed_view(spark, pipeline, view)

    def _session(self, pipeline: Pipeline, view: View) -> SparkSession:
        if self._spark is None:
            began = time.monotonic()
            self._say(f"starting Spark: view {view.name} has Spark SQL")
            from operations.gate import analyser

            self._spark = self._stack.enter_context(analyser(pipeline))
            self._say(f"Spark took {time.monotonic() - began:.1f} s to start")
        return self._spark


def _owner(source: Source) -> Source | None:
    """The same database for the role that sets up; None if the file names no other."""
    if source.setup_user in (None, source.user):
        return None
    secret = source.setup_password or SecretStr("")
    return source.model_copy(update={"user": source.setup_user, "password": secret})


def view_of(pipeline: Pipeline, name: str, connection: Connection) -> View:
    """A view of the file, or a captured table under its own name, as the tables are now.

    Args:
        pipeline: the loaded file.
        name: the view's, or the table's.
        connection: to Postgres.

    Raises:
        ConfigError: no such view, or it does not fit the tables; with its place in the file (terminal).
        SourceError: a table that it needs is not there (terminal).
    """
    absent: list[SourceError] = []
    places = {table: str(pipeline.locate(("source", "tables", n))) for n, table in enumerate(pipeline.source.tables)}
    catalogue = read_catalogue(connection, pipeline.source.tables, places, absent)
    if name not in pipeline.views:
        return _table(pipeline, catalogue, name)
    try:
        return resolve_view(pipeline, catalogue, name)
    except ConfigError as error:
        raise (absent[0] if absent else error) from error


def _table(pipeline: Pipeline, catalogue: Catalogue, name: str) -> View:
    """What a sink with ``tables`` keeps."""
    found = [table for table in catalogue.tables.values() if name in (table.name, table.qualified)]
    if len(found) == 1 and found[0].primary_key:
        return table_view(pipeline, found[0])
    choices = [*pipeline.views, *(table.name for table in catalogue.tables.values())]
    raise pipeline.error_at(
        ("views",), f"there is no view {name}", near(name, choices) or f"choose from {', '.join(pipeline.views)}"
    )


def shown(one: Made) -> Any:
    """A document for ``orjson`` to write, its fields in their order, its numbers with all of their digits."""
    return None if one.text is None else exact(one.text)


def _made(view: View, found: Expected) -> Made:
    if found.broken is not None:
        said = ", ".join(f"{name}: {text}" for name, text in found.broken.said.items())
        return Made(found.key, None, f"Spark can't compute {said}: {found.broken.words}", found)
    if found.fields is None:
        return Made(found.key, None, f"the condition of the view leaves it out: {view.where}", found)
    return Made(found.key, merge_fields(found.document, found.fields), "", found)
