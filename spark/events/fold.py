"""A fold's flow: events decoded in Python, folded by key in Spark's own state, written in Python.

records ─► event_rows (mapInArrow) ─► Folding.java (state by key, Spark SQL) ─► states ─► spark/events/kept.py

State and offsets are committed together by Spark, so each event counts once whatever is killed; sinks get the state
after a batch under the position of its newest event (docs/decisions/fold.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc.errors import ConfigError, DecodeError
from cdc.fold import FoldView, folded
from cdc.join.expressions import quoted
from cdc.types.plain import plain_values
from cdc.utf8 import has_text
from cdc.view import merge_fields
from spark.arrow import map_in_arrow
from spark.events.kept import Open, Told, documents_of
from spark.events.stateful import check_reach, refuse_other_attempt
from spark.flow import Flow, begin, changelog
from spark.machine.jars import BUILD_OWN_JAR, OWN_JAR
from spark.reading.entries import OWN, Decoded, Entry, EntryDecoder, entries_in
from spark.reading.expressions import (
    AS_TEXT,
    PREFIX,
    Refuse,
    entry_batch,
    entry_schema,
    reason,
    selected,
    unplaced,
    unwritten,
)
from spark.reading.record import records_of
from spark.reading.spec import FlowSpec, unpack
from spark.running import Query
from spark.write import letter_of

# Between the stages, beside an entry's own columns: that an incremental snapshot has read the event again.
AGAIN = "__again"


def analyse_fold(spark: SparkSession, view: FoldView, refuse: Refuse = unplaced) -> FoldView:
    """Check a fold's expressions, and learn the type of its state.

    Raises:
        ConfigError: they do not parse, name what is not there, or give something else than a state (terminal).
    """
    try:
        state = selected(spark.range(0), view.initial).schema[0].dataType
    except (AnalysisException, ParseException) as error:
        what = f"view {view.name}: `initial: {view.initial}` is not Spark SQL: {reason(error)}"
        raise refuse(("fold", "initial"), what, "give a struct: named_struct('name', value, …)") from error
    if not isinstance(state, T.StructType) or not state.fields:
        what = f"view {view.name}: `initial: {view.initial}` is a {state.simpleString()}, and no struct"
        raise refuse(("fold", "initial"), what, "give a struct: named_struct('name', value, …)")
    untyped = [field.name for field in state.fields if isinstance(field.dataType, T.NullType)]
    if untyped:
        what = f"view {view.name}: what `initial` gives for {', '.join(untyped)} has no type"
        raise refuse(("fold", "initial"), what, "say which: cast(NULL as string)")
    if why := unwritten(state, "initial"):
        raise refuse(("fold", "initial"), f"view {view.name}: {why}", AS_TEXT)
    known = replace(view, state={field.name: field.dataType.simpleString() for field in state.fields})
    twice = sorted(known.state.keys() & {out for _, out in view.columns})
    if twice:
        what = f"view {view.name}: {', '.join(twice)} is a field of the state, and a column"
        raise refuse(("fold", "initial"), what, "give the field another name")
    try:
        frame_of(spark, known)
    except (AnalysisException, ParseException) as error:
        what = f"view {view.name}: `step: {view.step}` does not give a {state.simpleString()}: {reason(error)}"
        fix = (
            f"see `state` and `event`, and give each field of `initial`; {view.table.qualified} has the event's columns"
        )
        raise refuse(("fold", "step"), what, fix) from error
    return known


def frame_of(spark: SparkSession, view: FoldView) -> DataFrame:
    """An empty frame whose only column is the state after some events: what Folding.java takes the expression from."""
    kind = view.state_type
    event = ", ".join(f"{quoted(name)}: {type_}" for name, type_ in view.spark_schema())
    schema = T.StructType.fromDDL(f"held {kind}, events array<struct<{event}>>")
    given = spark.createDataFrame([], cast(Any, schema))
    shape = T.DataType.fromDDL(kind).jsonValue()
    return given.select(F.expr(folded(view.step, view.initial, kind, shape)).alias("state"))


# -- the stages --------------------------------------------------------------------------------------------------------


class EventReader(EntryDecoder):
    """Decodes every event of a batch of records: of one key all count, not the newest alone."""

    def read(self, batch: pa.RecordBatch) -> tuple[Decoded, list[bool]]:
        """Entries with typed rows in the order of the records, and for each whether it was read again."""
        entries, again, letters = list[Entry](), list[bool](), []
        for key, value, topic, partition, offset in records_of(batch):
            (decoder, (view,)), at = self.routes[topic], (topic, partition, offset)
            try:
                change = decoder.decode(key, value, *at)
                if decoder.given_up(change):
                    continue
                entries.append(self._entry(view, change))
                again.append(decoder.read_later(change))
            except DecodeError as error:
                letters.append(self._letter(view, decoder, key, error, value, at))
        return Decoded(entries, letters, batch.num_rows), again


def event_rows(packed: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """First stage: Kafka records in, events out, and a tally behind them (a ``mapInArrow`` function)."""
    spec = unpack(packed)
    reader, view = EventReader(spec, typed=True), view_of(spec)
    for batch in batches:
        if batch.num_rows:
            decoded, again = reader.read(batch)
            made = entry_batch(spec, view, decoded)  # with the tally, which was not read again
            yield made.append_column(AGAIN, pa.array([*again, False], pa.bool_()))


def event_schema(view: FoldView) -> str:
    """DDL of ``event_rows``."""
    return f"{entry_schema(view)}, {quoted(AGAIN)} boolean"


def fold(spark: SparkSession, events: DataFrame, view: FoldView) -> DataFrame:
    """The stateful step: the newest state of each aggregate that has had events.

    Args:
        spark: the session.
        events: of ``event_rows``.
        view: its state's type is known.

    Returns:
        an entry's own columns, why it could not be folded (``failed``), and the ``state``.

    Raises:
        ConfigError: the session lacks our own classes (terminal).
    """
    row = F.struct(*(F.col(quoted(name)) for name, _ in view.spark_schema())).alias("event")
    own = [F.col(PREFIX + name).alias(name) for name in OWN]
    given = events.select(*own, F.col(AGAIN).alias("again"), row)
    jvm: Any = spark._jvm
    try:
        ours = jvm.headwater.spark.Folding
        if has_text(T.DataType.fromDDL(view.state_type).jsonValue()):
            ours.texts()  # an older jar has none, and would die in each task instead of here
        made = ours.fold(given._jdf, frame_of(spark, view)._jdf)
    except (Py4JError, TypeError) as error:
        raise ConfigError(
            f"view {view.name}: Spark lacks {OWN_JAR}, which keeps an aggregate's state, or has an older one",
            fix=BUILD_OWN_JAR,
        ) from error
    return DataFrame(made, spark)


def states(spec: FlowSpec, batch: pa.RecordBatch) -> Told:
    """Entries of folded aggregates: a document, or a delete of one that has ended or that nobody can tell."""
    view = view_of(spec)
    failed, held = batch.column("failed").to_pylist(), batch.column("state")
    fields = {name: plain_values(held.field(name)) for name in view.state}
    there = held.is_valid().to_pylist()
    entries, letters, rows = list[Entry](), [], list[int]()
    own, tally = entries_in(batch)
    for at, entry in own:
        rows.append(at)
        if failed[at] is not None:
            letters.append(letter_of(spec, entry, f"Spark could not fold an event of it: {failed[at]}"))
            entries.append(entry._replace(document=None))
        elif not there[at]:
            entries.append(entry._replace(document=None))
        else:
            assert entry.document is not None
            state = {name: values[at] for name, values in fields.items()}
            entries.append(entry._replace(document=merge_fields(entry.document, state)))
    return Told(Decoded(entries, letters, *tally), rows)


def view_of(spec: FlowSpec) -> FoldView:
    """The one view of a fold's flow."""
    return cast(FoldView, spec.view)


# -- the flow ----------------------------------------------------------------------------------------------------------


def is_fold(flow: Flow) -> bool:
    """Whether a flow keeps a folded view."""
    return any(isinstance(view, FoldView) for view in flow.spec.views.values())


def start_fold(spark: SparkSession, flow: Flow, opened: Open = documents_of) -> Query:
    """Start a flow of one folded view.

    Args:
        spark: the session.
        flow: the flow.
        opened: opens where its documents go.

    Raises:
        ClusterError: an executor does not see the flow's folder (terminal).
        ConfigError: without our own classes (terminal).
    """
    view = view_of(flow.spec)
    check_reach(spark, flow)
    refuse_other_attempt(flow)
    place = opened(spark, flow)
    records = changelog(spark, flow, turns=place.turns)
    events = map_in_arrow(records, partial(event_rows, flow.spec.pack()), event_schema(view))
    writer = place.writer(flow, fold(spark, events, view), states).queryName(flow.title)
    return place.query(begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow))
