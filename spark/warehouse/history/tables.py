"""Tables of history in Iceberg: made, and brought to their source's columns. What they hold is never removed here; of a
row that is erased it is, in ``spark.warehouse.erasing``."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, UnsupportedOperationException
from pyspark.sql import SparkSession

from cdc.errors import Fenced, SinkRefused
from cdc.history_names import FORMER, GAPS, HISTORY, VERSIONS, former_name, free
from cdc.join.expressions import literal, quoted
from cdc.log.ends import Offsets
from cdc.records.history import COLUMNS, DROPPED, OURS, versions_sql
from cdc.view import View
from sinks.iceberg.catalogue import LEASE
from sinks.iceberg.history import BEGINS, KEY, SOURCE, TABLE
from sinks.iceberg.numbers import NUMBERS
from sinks.iceberg.types import widens
from spark.warehouse.commits import loaded
from spark.warehouse.keys import float_keys
from spark.warehouse.table import HOUSE, create_namespace, rename_column, spelled
from spark.warehouse.whose import Whose, ids_noted, ids_there, tell, to_note, whose

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HistoryPlace:
    """Where a sink's history is.

    Attributes:
        catalog: the catalogue's name inside Spark.
        namespace: of the sink.
        source: identity of the source whose history it is.
        token: of the lease under which this process writes.
    """

    catalog: str
    namespace: str
    source: str
    token: int

    def name(self, view: View, end: str = HISTORY) -> str:
        """``catalog.namespace.table``, each part quoted."""
        return f"`{self.catalog}`.`{self.namespace}`.`{view.table.name}{end}`"

    @property
    def gaps(self) -> str:
        """The table of gaps."""
        return f"`{self.catalog}`.`{self.namespace}`.`{GAPS}`"

    def there(self, spark: SparkSession, view: View) -> bool:
        """Whether there is a table's history."""
        table = self.name(view)
        if not spark.catalog.tableExists(table):
            return False
        # As far as this session remembers: one of another key is put aside by another client.
        spark.catalog.refreshTable(table)
        return bool(spark.catalog.tableExists(table))

    def refuse_gone(self, view: View) -> None:
        """A history that goes on must find the table that it has written: the log holds no more what was in it.

        Raises:
            SinkRefused: always (terminal).
        """
        procedure = f"CALL {self.catalog}.system.register_table"
        raise SinkRefused(
            f"the history of {view.table.qualified} is gone: table {self.name(view)} is not there any more",
            means="a new one would lack all that was in it, and cuts would be wrong; nothing was written",
            fix=f"restore it, and start `headwater run` again: one that was renamed by its name, one that was dropped "
            f"and not purged by {procedure}('{self.namespace}.{view.table.name}{HISTORY}', '<its newest "
            ".metadata.json>'); or give the sink another namespace, where all its histories begin anew and the others "
            "stay readable where they are",
        )

    def make(self, spark: SparkSession, view: View, *, new: bool) -> None:
        """Make a table's history ready and claim it.

        Args:
            spark: the session.
            view: all of the table's columns.
            new: nothing was written yet, as far as the state folder knows.

        Raises:
            SinkRefused: it is not ours, or another source's, or holds rows of which the state folder knows nothing; or
                the source has a column of a name that we need (terminal).
        """
        table = self.name(view)
        taken = [column.name for column in view.table.columns if column.name.lower().startswith(OURS)]
        if taken:
            raise SinkRefused(
                f"table {view.table.qualified} has a column {taken[0]}, and {OURS}… are history's own",
                fix="rename it in the source, or take `history` out of the sink",
            )
        create_namespace(spark, table.rsplit(".", 1)[0])
        there = self.there(spark, view)
        known = self._known(spark, view, new=new) if there else {}
        properties = {
            **HOUSE,
            TABLE: view.table.qualified,
            SOURCE: self.source,
            LEASE: str(self.token),
        }
        numbers = json.dumps(view.numbers, sort_keys=True)
        if not there:  # of one that is there it stays: by it is seen that its rows had another key
            properties |= {KEY: json.dumps(view.key), NUMBERS: numbers}
            begins = None if new else self._begins_anew(spark, view)
            if begins is not None:
                properties[BEGINS] = str(begins)
        listed = ", ".join(f"'{name}'={literal(value)}" for name, value in properties.items())
        if there:
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({listed})")
        else:
            columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns_of(view).items())
            settings = f"'format-version'='2', {listed}"
            spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ({settings})")
        back = rename_back(spark, table, view, ids_noted(known))
        changed = follow(spark, table, view, json.loads(known.get(NUMBERS, "{}")))
        spark.catalog.refreshTable(table)
        found = ids_there(loaded(spark, table))
        noted = to_note({name: found[name] for name in columns_of(view) if name in found}, view.numbers)
        if any(known.get(name) != value for name, value in noted.items()):
            # Last: one that was killed before finds what it found here.
            listed = ", ".join(f"'{name}'={literal(value)}" for name, value in noted.items())
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({listed})")
        if back or changed or not there or not self._shows_versions(spark, view):
            self._show_versions(spark, view)

    def retyped(self, spark: SparkSession, view: View) -> list[str]:
        """Columns of the key that a history holds in a type from which Iceberg can't make the source's.

        Such a column can't be put aside as others are: of all rows of before the key would be null, and who is current,
        and what a cut shows, is told by the key. Not of a history whose rows have other columns as their key: its topic
        is about to be made anew (operations/run/history.py). Nor of another database's, which ``make`` refuses.
        """
        table = self.name(view)
        if not self.there(spark, view):
            return []
        found = properties_of(spark, table)
        ours = found.get(TABLE) == view.table.qualified and found.get(SOURCE) == self.source
        if not ours or json.loads(found.get(KEY, "[]")) != list(view.key):
            return []
        return retyped_key(view.key, columns_there(spark, table), columns_of(view))

    def put_aside(self, spark: SparkSession, view: View) -> str:
        """Give a history another name, as that of another key gets it; ``make`` then begins a new one, in which nothing
        is that was written before the source's rows were read again.

        Returns:
            the name.
        """
        table = self.name(view)
        # First: by this the next start knows, should this one be killed in between, that the new one begins anew.
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{BEGINS}'='{view.table.since}')")
        name = former_name(view.table.name, view.key, set(self._tables(spark)))
        spark.sql(f"ALTER TABLE {table} RENAME TO {quoted(self.namespace)}.{quoted(name)}")
        return name

    def _tables(self, spark: SparkSession) -> list[str]:
        """Names of all tables of the namespace."""
        return [row["tableName"] for row in spark.sql(f"SHOW TABLES IN `{self.catalog}`.`{self.namespace}`").collect()]

    def _begins_anew(self, spark: SparkSession, view: View) -> int | None:
        """Where a history of the table begins if others were put aside because of its key's type (LSN in bytes): where
        the last of them was. The table may have got columns since, and its rows need not have been read again."""
        names = [name for name in self._tables(spark) if name.startswith(view.table.name + FORMER)]
        former = (properties_of(spark, f"`{self.catalog}`.`{self.namespace}`.{quoted(name)}") for name in names)
        ours = [int(one[BEGINS]) for one in former if BEGINS in one and one.get(TABLE) == view.table.qualified]
        return max(ours, default=None)

    def begins(self, spark: SparkSession, view: View) -> int:
        """Where a history begins that was begun anew (LSN in bytes); 0 of others."""
        return int(properties_of(spark, self.name(view)).get(BEGINS, "0"))

    def _known(self, spark: SparkSession, view: View, *, new: bool) -> dict[str, str]:
        """The properties of a table that is there, and ours."""
        table, found = self.name(view), properties_of(spark, self.name(view))
        if found.get(TABLE) != view.table.qualified:
            raise SinkRefused(
                f"table {table} is there, but it is not the history of {view.table.qualified}",
                means="nothing was written to it",
                fix="rename it, or give the sink another namespace",
            )
        if found.get(SOURCE) != self.source:
            raise SinkRefused(
                f"table {table} is the history of another database (system identifier {found.get(SOURCE)})",
                means="two histories in one table could not be told apart; nothing was written to it",
                fix="give the sink another namespace: the old history stays readable where it is",
            )
        if new and not spark.table(table).limit(1).isEmpty():
            raise SinkRefused(
                f"table {table} holds history, but nothing in the state folder says up to where",
                means="its checkpoint is lost, or the pipeline was dropped: rows would be in it twice",
                fix="point engine.state_dir at the old state; or rename the table, or give the sink another namespace",
            )
        return found

    def _versions_text(self, spark: SparkSession, view: View) -> str:
        shown = [name for name in columns_there(spark, self.name(view)) if not name.startswith(OURS)]
        return versions_sql(shown, view.key, self.name(view), "`", float_keys(view))

    def _shows_versions(self, spark: SparkSession, view: View) -> bool:
        """Whether the view of versions is there; where a float is in the key, whether it is as we make it now, too: one
        of an older Headwater takes 0.0 and -0.0 for one row."""
        name = self.name(view, VERSIONS)
        if not _is_there(spark, name):
            return False
        if not float_keys(view):
            return True
        try:
            [made] = spark.sql(f"SHOW CREATE TABLE {name}").collect()
        except (AnalysisException, UnsupportedOperationException, Py4JJavaError):
            return False  # made anew at each start it is right as well
        return self._versions_text(spark, view) in made[0]

    def _show_versions(self, spark: SparkSession, view: View) -> None:
        text = self._versions_text(spark, view)
        try:
            spark.sql(f"CREATE OR REPLACE VIEW {self.name(view, VERSIONS)} AS {text}")
        except UnsupportedOperationException:
            # A REST catalogue may offer tables alone: history is whole without the view.
            _log.warning("the catalogue offers no views: %s is not made", self.name(view, VERSIONS))
        except (AnalysisException, Py4JJavaError) as error:
            # One query writes the histories of all tables: it must not stand still for a view of one of them.
            words = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
            _log.warning("%s is not made: %s", self.name(view, VERSIONS), words.partition("\n")[0])

    def check(self, spark: SparkSession, view: View) -> None:
        """Raise if a later holder of the lease has claimed the table; it is loaded anew.

        Raises:
            Fenced: it has (terminal).
        """
        table = self.name(view)
        spark.catalog.refreshTable(table)
        if int(properties_of(spark, table).get(LEASE, "0")) > self.token:
            raise Fenced(
                f"table {table} was claimed by another process",
                means="it goes on from the same place; this one has stopped writing, nothing is lost",
                fix="nothing, if the other process is meant to run; else stop that one first",
            )

    def note_gap(self, spark: SparkSession, sink: str, moments: tuple[float, float], starts: Offsets, why: str) -> None:
        """Write down that events between two moments (epoch seconds) may be missing.

        Args:
            spark: the session.
            sink: its name.
            moments: since when, until when.
            starts: where the partitions were that had something unread.
            why: in words.
        """
        schema = "sink string, since timestamp, until timestamp, found_at timestamp, why string, offsets string"
        create_namespace(spark, self.gaps.rsplit(".", 1)[0])
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.gaps} ({schema}) USING iceberg TBLPROPERTIES ('format-version'='2')"
        )
        since, until = (datetime.fromtimestamp(seconds, UTC) for seconds in moments)
        row = (sink, since, until, datetime.now(UTC), why, json.dumps(starts, sort_keys=True))
        spark.createDataFrame([row], schema).writeTo(self.gaps).append()


def _is_there(spark: SparkSession, name: str) -> bool:
    try:
        return bool(spark.table(name).schema)
    except AnalysisException:
        return False


def properties_of(spark: SparkSession, table: str) -> dict[str, str]:
    """A table's properties."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def columns_of(view: View) -> dict[str, str]:
    """Name -> type of what a table's history is to have, as Iceberg has it: no integer is smaller there than an int.

    Else a column of ``smallint`` was of another type at each start, and put aside with all that it held.
    """
    wanted = {**dict(view.spark_schema()), **COLUMNS}
    return {name: re.sub(r"\b(?:tiny|small)int\b", "int", kind) for name, kind in wanted.items()}


def columns_there(spark: SparkSession, table: str) -> dict[str, str]:
    """Name -> Spark's type of what it has."""
    return {field.name: field.dataType.simpleString() for field in spark.table(table).schema}


def rename_back(spark: SparkSession, table: str, view: View, noted: Mapping[str, int]) -> bool:
    """Give columns that somebody has renamed their names again: a new one would be null in every earlier cut.

    Args:
        spark: the session.
        table: its name inside Spark.
        view: all of the table's columns.
        noted: ``ids_noted`` of the table; nothing is done to one of which none are.

    Returns:
        whether anything was changed.
    """
    handle = loaded(spark, table)
    there = ids_there(handle)
    found = whose(there, noted, (), there)
    back = {name: own for name, own in found.renamed.items() if spelled(own, there) in (None, *found.renamed)}
    if not back:
        return False
    tell(table, Whose(back, (), ()), columns_of(view))
    update = handle.updateSchema()
    for name, own in back.items():
        update.renameColumn(name, own)
    update.commit()
    spark.catalog.refreshTable(table)
    return True


def follow(spark: SparkSession, table: str, view: View, numbers: Mapping[str, int]) -> bool:
    """Bring a table to its source's columns: new ones are added, those that are gone stay, with what they hold.

    A column that has become of a type that Iceberg can't make of it in place is put aside under a name that says its
    old type, and a new one begins. One that was dropped, or renamed, makes room for another that has its name now, in
    whatever letter case: to Spark they are one.

    Args:
        spark: the session.
        table: its name inside Spark.
        view: all of the table's columns.
        numbers: ``numbers`` of the view that it was brought to last; empty if that is not known.

    Returns:
        whether anything was changed.
    """
    wanted, there = columns_of(view), columns_there(spark, table)
    before = dict(there)

    def rename(name: str, other: str) -> None:
        rename_column(spark, table, name, other)
        there[other] = there.pop(name)

    now_called = {number: name for name, number in view.numbers.items()}
    for certain, former, present in renames(view, numbers):
        if former in there and former not in wanted and present in wanted:
            other = spelled(present, there)
            if certain and other not in (None, former):  # of another column, that was dropped or was itself renamed
                now = now_called.get(numbers.get(str(other), 0))
                room = now in wanted and spelled(str(now), there) is None
                rename(str(other), str(now) if room else free(f"{other}{DROPPED}", there))
            if spelled(present, there) in (None, former):
                rename(former, present)
    for name in wanted:
        if (other := spelled(name, there)) not in (None, *wanted):  # of one that was dropped before
            rename(str(other), free(f"{other}{DROPPED}", there))
    for name, kind in wanted.items():
        if name in there and there[name] != kind:
            if widens(there[name], kind):
                spark.sql(f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} TYPE {kind}")
                there[name] = kind
            else:
                rename(name, former_column(name, there[name], there))
    added = ", ".join(f"{quoted(name)} {kind}" for name, kind in wanted.items() if name not in there)
    if added:
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({added})")
    return bool(added) or there != before


def renames(view: View, numbers: Mapping[str, int]) -> list[tuple[bool, str, str]]:
    """The renamings of a table's columns, as (certain, former name, present one); those that are certain come first.

    Certain is one whose column had the former name when the history was brought to the source's columns last. By names
    alone it may be another column, of the same name, that was added later and dropped. Pure.

    Args:
        view: all of the table's columns.
        numbers: as of ``follow``.
    """
    now = view.numbers
    found = [
        (present in now and numbers.get(former) == now[present], former, present)
        for former, present in view.table.renamed
    ]
    return sorted(found, key=lambda one: not one[0])


def retyped_key(key: Sequence[str], there: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Columns of a key that are there and can't become of the type that is wanted (name -> Spark's type). Pure."""
    return [name for name in key if name in there and name in wanted and not widens(there[name], wanted[name])]


def former_column(name: str, kind: str, taken: Mapping[str, str]) -> str:
    """The name under which a column of a former type stays. Pure."""
    return free(f"{name}__{re.sub('[^a-z0-9]+', '_', kind).strip('_')}", taken)
