"""The warehouse's catalogue, described once and opened by three: Spark, pyiceberg and DuckDB.

All three must agree on the catalogue's name, because a SQL catalogue has it in every table's key: a table made by Spark
under another name is invisible to pyiceberg. So everything here takes that name. What differs between kinds of
catalogues is in ``sinks.iceberg.catalogues``, where the files are in ``sinks.iceberg.storage``.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from sinks.iceberg import storage
from sinks.iceberg.catalogues.kinds import catalogue_of
from sinks.iceberg.owners import GENERATION, is_ours, maker, not_ours
from sinks.iceberg.place import Place
from sinks.iceberg.purging import purge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# The table's property that says which holder of its lease has claimed it last. Spark shows stars for a property with
# "token" in its name.
LEASE = "headwater.lease"
# A swap that meets a commit is tried again; a commit takes longer than a swap.
SWAP_TRIES = 50
# How often a reader looks again while a promotion has a name away.
_LOOK_SECONDS = 0.05


def spark_properties(sink: Any) -> dict[str, str]:
    """Settings of the Iceberg catalogue as Spark takes them, without the ``spark.sql.catalog.<name>.`` prefix.

    Creates the folders of a local catalogue: SQLite does not.

    Args:
        sink: anything that ``Place.of`` takes, e.g. the pipeline's ``IcebergSink``.

    Raises:
        ConfigError: an address of a kind that is not known, or a credential is not in the environment; named.
    """
    place = Place.of(sink)
    return {
        **catalogue_of(place).spark_properties(),
        **storage.spark_properties(place),
        # A table that was loaded, and whose properties were looked at, must be the very one that the next statement
        # writes to: a promotion in between may have given its name to another. So it is only ever loaded anew by
        # `refreshTable`; what then commits to another table's row fails, by its UUID.
        "cache-enabled": "true",
        "cache.expiration-interval-ms": "-1",
    }


def pyiceberg_properties(sink: Any) -> dict[str, str]:
    """The same catalogue as pyiceberg takes it.

    Raises:
        ConfigError: an address of a kind that is not known, or a credential is not in the environment; named.
    """
    place = Place.of(sink)
    return {**catalogue_of(place).pyiceberg_properties(), **storage.pyiceberg_properties(place)}


def check(sink: Any, catalog: str) -> None:
    """Look whether the catalogue and the place for the files answer, and let us in; changes nothing.

    Raises:
        ConfigError: a credential is not in the environment. SinkRefused: the one or the other refuses, or there is no
            such bucket. SinkUnavailable: it does not answer (transient).
    """
    place = Place.of(sink)
    catalogue_of(place).check(catalog, pyiceberg_properties(place))
    storage.check(place)


def check_files(sink: Any) -> None:
    """The second half of ``check``: before a table is made."""
    storage.check(Place.of(sink))


def needs_s3(sink: Any) -> bool:
    """Whether Spark needs the client of S3 for a sink's files."""
    return storage.on_s3(Place.of(sink))


def table_name(sink: Any, view: str, generation: int = 1) -> tuple[str, str]:
    """(namespace, table) under which a generation of a view is made. Where it is later, ``find_table`` says: a
    promotion changes the names.

    Raises:
        ConfigError: a name that one of the engines would have to quote.
    """
    for name in (sink.namespace, view):
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} can't name an Iceberg namespace or table", fix="use letters, digits and '_'")
    return sink.namespace, view if generation == 1 else f"{view}__g{generation}"


@contextmanager
def open_catalog(sink: Any, catalog: str) -> Iterator[Catalog]:
    """The catalogue through pyiceberg; closes its connections at the end.

    Args:
        sink: as ``spark_properties``.
        catalog: the catalogue's name, the same as inside Spark.

    Raises:
        SinkUnavailable: the catalogue, or the server of the files, does not answer (transient).
        SinkRefused: it refuses.
    """
    place = Place.of(sink)
    with storage.named(place), catalogue_of(place).open(catalog, pyiceberg_properties(place)) as opened:
        yield opened


def generation_of(table: Table) -> int:
    """Which generation a table is; one from before there were generations counts as the first."""
    return int(table.properties.get(GENERATION, "1"))


def load_table(
    catalog: Catalog, sink: Any, view: str, generation: int | None = None, owner: str | None = None
) -> Table:
    """A view's table at its newest snapshot.

    Args:
        catalog: opened by ``open_catalog``.
        sink: as ``spark_properties``.
        view: the view's name.
        generation: which; the one that readers see if None.
        owner: ``<pipeline>/<sink>``, whose it must be; None to read it, whoever has made it.

    Raises:
        SinkRefused: there is no such table, or it is not theirs.
    """
    deadline = time.monotonic() + catalogue_of(Place.of(sink)).gap_seconds
    while True:
        if (found := _look(catalog, sink, view, generation, owner)) is not None:
            return found
        if generation is not None or time.monotonic() > deadline or not _set_aside(catalog, sink, view):
            break
        time.sleep(_LOOK_SECONDS)  # a promotion of these moments has the name away
    if owner is not None and (other := _look(catalog, sink, view, generation)) is not None:
        raise not_ours(".".join(other.name()[-2:]), other.properties, owner, view)
    which = "" if generation is None else f" of generation {generation}"
    raise SinkRefused(
        f"no table {sink.namespace}.{view}{which} in catalogue {catalog.name}",
        means="nothing has been written to it yet, or the catalogue has another name or place",
        fix="run the pipeline first; compare catalog_uri with the one it ran with",
    )


def _look(catalog: Catalog, sink: Any, view: str, generation: int | None, owner: str | None = None) -> Table | None:
    from pyiceberg.exceptions import NoSuchTableError

    namespace, shown = table_name(sink, view)
    places = [shown] if generation is None else [shown, f"{view}__g{generation}"]
    for name in places * 2:  # twice: a promotion between two looks may have swapped the names
        try:
            table = catalog.load_table((namespace, name))
        except NoSuchTableError:
            continue
        ours = owner is None or is_ours(table.properties, owner, view)
        if ours and generation in (None, generation_of(table)):
            return table
    return None


def _set_aside(catalog: Catalog, sink: Any, view: str) -> bool:
    """Whether tables of several generations wait under names of their own, as in the middle of two renames."""
    return sum(name.startswith(f"{view}__g") for name in table_names(catalog, sink)) > 1


def table_names(catalog: Catalog, sink: Any) -> list[str]:
    """What the tables of the sink's namespace are called, whoever has made them."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        return [name[-1] for name in catalog.list_tables(sink.namespace)]
    except NoSuchNamespaceError:
        return []


def find_table(sink: Any, catalog: str, view: str, generation: int, owner: str | None = None) -> tuple[str, str]:
    """(namespace, table) where a generation of a view is just now: under the view's name if readers see it, else under
    its own. A promotion may swap them at any time; a commit that was begun on the other one fails then. ``owner`` as of
    ``load_table``.

    Raises:
        SinkRefused: there is none. SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        namespace, name = load_table(opened, sink, view, generation, owner).name()[-2:]
        return namespace, name


def living(sink: Any, catalog: str, view: str, owner: str | None = None) -> int | None:
    """The generation that readers see; None if there is no table. ``owner`` as of ``load_table``.

    Raises:
        SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        try:
            return generation_of(load_table(opened, sink, view, None, owner))
        except SinkRefused:
            return None


def there(sink: Any, catalog: str, view: str, generation: int, owner: str | None = None) -> bool:
    """Whether a generation has a table. ``owner`` as of ``load_table``.

    Raises:
        SinkUnavailable: the catalogue does not open (transient). SinkRefused: it does not let us in.
    """
    with open_catalog(sink, catalog) as opened:
        try:
            load_table(opened, sink, view, generation, owner)
        except SinkRefused:
            return False
    return True


def claimed(sink: Any, catalog: str, view: str, generation: int, owner: str | None = None) -> int | None:
    """The newest lease token that has claimed a generation's table; None if there is no table, or if none has.
    ``owner`` as of ``load_table``.

    Raises:
        SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        try:
            token = load_table(opened, sink, view, generation, owner).properties.get(LEASE)
        except SinkRefused:
            return None
    return None if token is None else int(token)


def promote_table(sink: Any, catalog: str, view: str, new: int, old: int, owner: str) -> None:
    """Make a generation the one that readers of the view's table see. Idempotent; back again is the same call.

    The catalogue swaps the two names: a SQL one in one transaction, so that every reader, of whatever kind, sees the
    one or the other; a REST one by two renames, so that for a moment the name leads nowhere. A commit that is under way
    on either finds another table, and fails.

    Args:
        sink: as ``spark_properties``.
        catalog: the catalogue's name, the same as inside Spark.
        view: the view's name.
        new: what is to be seen.
        old: what is seen now (or ``new`` already).
        owner: ``<pipeline>/<sink>``, whose both must be: readers of another's would see our rows from one moment to the
            next.

    Raises:
        SinkRefused: one of them is not there or not ours, or readers see a third.
        SinkUnavailable: the catalogue does not open, or writers commit without a pause (transient).
    """
    kind = catalogue_of(Place.of(sink))
    with open_catalog(sink, catalog) as opened:
        for _ in range(SWAP_TRIES):
            # A view that the old generation did not have, or a promotion that was ended between two renames.
            if (seen := _look(opened, sink, view, None)) is None:  # by a GET: a HEAD's 404 may be a gateway's
                built = load_table(opened, sink, view, new, owner)
                opened.rename_table(built.name()[-2:], table_name(sink, view))
                return
            if not is_ours(seen.properties, owner, view):
                raise SinkRefused(
                    f"readers of {sink.namespace}.{view} see a table that {maker(seen.properties)} has made",
                    means="they see what they saw before; nothing was changed",
                    fix="give the sink another `namespace:`; or `headwater drop` the other pipeline, or rename that "
                    "table, before",
                )
            if generation_of(seen) == new:
                return
            if generation_of(seen) != old:
                raise SinkRefused(
                    f"readers of {sink.namespace}.{view} see generation {generation_of(seen)}, not {old}",
                    means="someone else has promoted; nothing was changed",
                    fix="`headwater generations FILE` says what is known; then promote again",
                )
            if kind.swap(opened, seen, load_table(opened, sink, view, new, owner), f"{view}__g{old}"):
                return
    raise SinkUnavailable(f"tables of {sink.namespace}.{view} are committed to all the time", fix="promote again")


def scan(
    sink: Any, catalog: str, view: str, columns: Sequence[str] = ("*",), generation: int | None = None
) -> Iterator[pa.RecordBatch]:
    """A view's rows as Arrow batches, in bounded memory, deletes applied; all from one snapshot.

    Raises:
        SinkRefused: no such table. SinkUnavailable: the catalogue does not open (transient).
    """
    with open_catalog(sink, catalog) as opened:
        table = load_table(opened, sink, view, generation)
        yield from table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()


def of_others(sink: Any, catalog: str, views: Collection[str], owner: str) -> dict[str, str]:
    """Views whose name a table has that is not theirs: view -> who has made it, in words. Changes nothing.

    Args:
        sink: as ``spark_properties``.
        catalog: the catalogue's name, the same as inside Spark.
        views: their names.
        owner: ``<pipeline>/<sink>``.

    Raises:
        SinkUnavailable: the catalogue does not open (transient).
    """
    found: dict[str, str] = {}
    if not catalogue_of(Place.of(sink)).begun(pyiceberg_properties(sink)):
        return found
    with open_catalog(sink, catalog) as opened:
        for view in views:
            table = _look(opened, sink, view, None)
            if table is not None and not is_ours(table.properties, owner, view):
                found[view] = maker(table.properties)
    return found


def count(sink: Any, catalog: str, view: str, generation: int | None = None) -> int:
    """Rows of a view's table, counted without reading data files where their statistics suffice."""
    with open_catalog(sink, catalog) as opened:
        return load_table(opened, sink, view, generation).scan().count()


def drop_table(sink: Any, catalog: str, view: str, generation: int, owner: str) -> None:
    """Remove a generation's table with its files; nothing happens when there is none. What is not a table of the sink
    ``owner`` (``<pipeline>/<sink>``) stays."""
    with open_catalog(sink, catalog) as opened:
        table = _look(opened, sink, view, generation, owner)
        if table is None:
            if (other := _look(opened, sink, view, generation)) is not None:
                name, theirs = ".".join(other.name()[-2:]), maker(other.properties)
                _log.warning("table %s is not this sink's, for %s has made it, and stays", name, theirs)
            return
        with gone_is_deleted():
            purge(opened, table)
    _remove_empty(table.location())


@contextmanager
def gone_is_deleted() -> Iterator[None]:
    """Inside, pyiceberg does not warn of files that it would delete and that are gone already.

    Manifests also name what upkeep has removed, and `run`, which writes meanwhile, removes old metadata as well.
    """

    def other(_record: logging.LogRecord) -> bool:
        return not isinstance(sys.exc_info()[1], FileNotFoundError)

    logger = logging.getLogger("pyiceberg.catalog")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _remove_empty(location: str) -> None:
    """Folders that a table's files have left empty; in a bucket there are none."""
    place = storage.location(location)
    for folder, _, _ in os.walk(place, topdown=False) if "://" not in place else ():
        with suppress(OSError):  # something is in it
            Path(folder).rmdir()


def metadata_location(sink: Any, catalog: str, view: str, generation: int | None = None) -> str:
    """Path of the table's current metadata file: what DuckDB's ``iceberg_scan`` takes."""
    with open_catalog(sink, catalog) as opened:
        return load_table(opened, sink, view, generation).metadata_location


def catalog_name(sink: str) -> str:
    """The Iceberg catalogue's name inside Spark."""
    return f"hw_{sink}"
