"""One generation of a sink, opened: taken by who runs it, or looked at beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdc.catalogue import Catalogue
from cdc.errors import SourceChanged, StateError, TopicRecreated
from cdc.keyspaces import owner_of
from cdc.log.topic_ids import topic_ids
from cdc.outbox import topics_of_tables
from cdc.pipeline import Pipeline
from cdc.pipeline.sinks import Sink
from cdc.resolve.views import resolve_views, topics_of, view_tables
from cdc.stateful import StatefulView
from cdc.view import View
from operations.rowstore import row_store_settings
from operations.state.folder import followed_timelines, numbered_state_dir, register_of
from operations.state.frozen import known_to, read_frozen
from operations.state.pausing import refuse_paused
from operations.state.shapes import positions
from sinks.rowstore.settings import StoreSettings
from spark.disk.made_of import as_defined, define, keep_definition, proposed
from spark.disk.register import Stage
from spark.disk.state import Generation, Identity
from spark.disk.status import FlowStatus, state_of
from spark.flow import flow_name
from truth.expected import Form


@dataclass(frozen=True)
class Opened:
    """One generation of a sink: made once, and handed to whoever has to do with it, another process included.

    Attributes:
        pipeline: as the generation was defined.
        generation: its folder and lease.
        views: what it keeps.
        token: of its lease, which writes need.
        rebuilding: nobody reads it yet.
        throttle: see ``spark.flow.Flow``.
        definition: to be kept once it is accepted; None for a generation that goes on as it was defined.
        identity: to be bound to then; None for who only looks.
    """

    pipeline: Pipeline
    generation: Generation
    views: Sequence[View]
    token: int
    rebuilding: bool = False
    throttle: float = 1.0
    definition: Mapping[str, Any] | None = None
    identity: Identity | None = None

    @property
    def sink(self) -> str:
        """The sink's name."""
        return self.generation.sink

    @property
    def number(self) -> int:
        """Which generation it is."""
        return self.generation.number

    @property
    def owner(self) -> str:
        """As whom it claims what is its own on a server."""
        return owner_of(self.pipeline.name, self.sink)

    @property
    def about(self) -> dict[str, Any]:
        """What lines about it are about (cdc/journal.py)."""
        return {"sink": self.sink, "generation": self.number}

    @property
    def part(self) -> Sink:
        """The sink's part of the pipeline file."""
        return self.pipeline.sinks[self.sink]

    @property
    def warehouse(self) -> bool:
        """Whether it keeps tables, not documents."""
        return self.part.form == "columns"

    def form(self, view: View) -> Form:
        """How what it holds of a view is compared: what is made of events as documents, in a table too."""
        return "document" if isinstance(view, StatefulView) else self.part.form

    @property
    def topics(self) -> set[str]:
        """What it reads."""
        return {topic for view in self.views for topic in topics_of(self.pipeline, view)}

    def views_of(self, table: str) -> list[View]:
        """The views whose root a table is: ``schema.table``."""
        return [view for view in self.views if view.table.qualified == table]

    def flow_folder(self, view: View) -> Path:
        """Where the flow that keeps a view has its checkpoint and status."""
        return self.generation.flow_folder(flow_name(view, separate=self.warehouse))

    def status(self, view: View) -> tuple[FlowStatus | None, str]:
        """What the flow that keeps a view has said last, and its state now."""
        status = FlowStatus.read(self.flow_folder(view))
        return status, state_of(status, self.generation.lease.holder())

    def row_store(self, view: View, **patience: float) -> StoreSettings:
        """Where a joined view's rows are; ``patience`` in place of how long a flow waits for its server.

        Raises:
            ConfigError: the file has no ``row_store``.
        """
        return StoreSettings(**(row_store_settings(self.pipeline, self.generation, view.name) | patience))


def open_generation(
    pipeline: Pipeline,
    catalogue: Catalogue,
    sink: str,
    number: int,
    *,
    rebuilding: bool = False,
    throttle: float = 1.0,
) -> Opened:
    """Take a generation's lease and check that what it was filled from is what is there; ``accept`` writes that down.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        sink: whose generation.
        number: which.
        rebuilding: it is being filled, and nobody reads it yet.
        throttle: see ``spark.flow.Flow``.

    Raises:
        StateError: another process runs it, its sink is paused, it was retired meanwhile, or it is bound to something
            else (terminal; nothing was started).
        ConfigError: its views do not fit the source's tables (terminal).
    """
    folder = numbered_state_dir(pipeline)
    generation = Generation(folder, pipeline.name, sink, number)
    there = generation.folder.exists()
    token = generation.lock()
    try:
        # Only now: who pauses or retires writes that down first, and then waits for the lease.
        refuse_paused(pipeline, [sink], "nothing is written to it")
        _refuse_retired(register_of(pipeline, sink).stage(number), generation, there=there)
        catalogue = known_to(pipeline, generation, catalogue)
        # One that has written nothing yet takes the file as it is now, whatever an earlier attempt was made of.
        started = generation.started
        known = generation.known() if started else None
        if known is not None and not (generation.folder / "definition.json").exists():
            # Filled by a Headwater that did not keep definitions: the file must still say what it said then.
            bound = identity(pipeline, catalogue, known.topic_ids, pipeline.spec_hash(sink))
            generation.bind(bound, followed_timelines(pipeline))
        definition = None if started else proposed(generation, pipeline, list(catalogue.tables))
        kept = definition or define(generation, pipeline, list(catalogue.tables))
        defined = going_on(pipeline, generation, catalogue) if started else pipeline
        views = resolve_views(defined, catalogue, sink)
        if definition is not None:
            taken = {name: table for view in views for name, table in view_tables(view).items()}
            definition = {**definition, "shapes": positions(pipeline, taken.values())}
        build = Opened(defined, generation, views, token, rebuilding, throttle, definition)
        ids = _ids_now(pipeline, build, known)
        bound = identity(pipeline, catalogue, ids, known.spec_hash if known else str(kept["spec_hash"]))
        if known is not None:
            generation.bind(bound, followed_timelines(pipeline))
    except BaseException:
        generation.unlock()
        raise
    return replace(build, identity=bound)


def _refuse_retired(stage: Stage | None, generation: Generation, *, there: bool) -> None:
    """Refuse one that was retired since whoever opens it has looked: its target would be made anew, and nobody know."""
    if stage in (None, "retiring"):
        if stage is None and not there:
            generation.discard()  # its folder is of the lease alone, which has made it anew
        raise StateError(
            f"sink {generation.sink}: generation {generation.number} was retired meanwhile",
            fix="`headwater generations FILE` shows those that there are",
        )


def _ids_now(pipeline: Pipeline, build: Opened, known: Identity | None) -> dict[str, str]:
    """Kafka's ids of what a generation reads; a topic of which it takes nothing any more may be made anew."""
    if known is None:
        return topic_ids(pipeline, build.topics)
    gone = _let_go(build)
    kept = {topic: one for topic, one in known.topic_ids.items() if topic in gone}
    return topic_ids(pipeline, build.topics - gone) | kept


def _let_go(build: Opened) -> set[str]:
    """Topics of which a generation takes nothing any more."""
    return set(topics_of_tables(build.pipeline, read_frozen(build.generation).refused))


def refuse_recreated(build: Opened, topics: Collection[str]) -> None:
    """Refuse to go on in topics that somebody has deleted and made again since the generation was opened.

    A producer, or a consumer of somebody else's, makes a deleted topic anew where the brokers allow it. Its offsets
    pass a small place within moments, and what stands before that would be skipped.

    Args:
        build: the generation.
        topics: that are to be read. Of one that is not there others tell.

    Raises:
        TopicRecreated: one of them is another (terminal).
        KafkaUnavailable: the brokers do not answer (transient).
    """
    known = build.generation.known()
    if known is None:
        return
    asked = (known.topic_ids.keys() & set(topics)) - _let_go(build)
    now = topic_ids(build.pipeline, asked, missing_ok=True)
    build.generation.refuse_recreated({topic: known.topic_ids[topic] for topic in asked}, now)


def same_log(pipeline: Pipeline, catalogue: Catalogue, generation: Generation) -> bool:
    """Whether database and topics are those that a generation was filled from: in others it has no place to go on from.
    One that was bound to none is of none.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        generation: one that has written; it is not taken.

    Raises:
        KafkaError: the brokers do not answer (transient), or a topic is not there.
        ConfigError: its views do not fit the source's tables (terminal).
    """
    known = generation.known()
    if known is None:
        return False
    ids = _ids_now(pipeline, peek(pipeline, catalogue, generation), known)
    try:
        generation.held_against(identity(pipeline, catalogue, ids, known.spec_hash), followed_timelines(pipeline))
    except (SourceChanged, TopicRecreated):
        return False
    return True


def named_tables(part: Sink) -> list[str]:
    """The tables that a sink's part of the file, or a generation's definition, names one by one. Pure."""
    return [] if part.tables is None or isinstance(part.tables, str) else list(part.tables)


def kept_tables(pipeline: Pipeline, generation: Generation) -> list[str]:
    """The tables that a generation of a sink of whole tables was made to keep, or has come to keep since.

    Raises:
        StateError: the definition can't be read, or is of another kind of sink than the file's (terminal).
    """
    return named_tables(as_defined(pipeline, generation).sinks[generation.sink])


def going_on(pipeline: Pipeline, generation: Generation, catalogue: Catalogue) -> Pipeline:
    """The pipeline with a sink as one of its generations goes on: as it was made, but for tables that are gone and that
    nobody has named. Pure but for the definition's file.

    Args:
        pipeline: the loaded file.
        generation: one that has written.
        catalogue: the captured tables as it knows them (``known_to``).

    Raises:
        StateError: the definition can't be read (terminal).
    """
    return without_absent(pipeline, as_defined(pipeline, generation), generation.sink, catalogue)


def without_absent(pipeline: Pipeline, defined: Pipeline, sink: str, catalogue: Catalogue) -> Pipeline:
    """A warehouse of all tables goes on without those that nobody has named and that are gone, and those that are not
    captured any more. Pure.

    Args:
        pipeline: the loaded file.
        defined: the same with the sink as its generation was made of.
        sink: the sink's name.
        catalogue: the captured tables as the generation knows them.
    """
    part = defined.sinks[sink]
    # Documents of all plain views are kept by one flow, whose checkpoint has the gone topic's offsets.
    if part.form != "columns" or pipeline.sinks[sink].tables != "all":
        return defined
    named = named_tables(part)
    short = {table.name for table in catalogue.tables.values()}  # as the file had it while it named them one by one
    there = [table for table in named if table in catalogue.tables or table in short]
    if not there or there == named:
        return defined
    changed = part.model_copy(update={"tables": there})
    return defined.model_copy(update={"sinks": {**defined.sinks, sink: changed}})


def with_table(pipeline: Pipeline, generation: Generation, table: str) -> Pipeline:
    """The pipeline with a sink of whole tables as one of its generations was made of, and one table more. Pure but for
    the definition's file."""
    defined = as_defined(pipeline, generation)
    part = defined.sinks[generation.sink]
    others = [name for name in named_tables(part) if name != table]
    changed = part.model_copy(update={"tables": [*others, table]})
    return defined.model_copy(update={"sinks": {**defined.sinks, generation.sink: changed}})


def accept(build: Opened) -> None:
    """Write down what a generation is made of and bound to: its views and expressions have been found right.

    Raises:
        StateError: it is bound to something else (terminal).
    """
    generation = build.generation
    if build.definition is not None:
        (generation.folder / "identity.json").unlink(missing_ok=True)
        keep_definition(generation, build.definition)
    if build.identity is not None:
        generation.bind(build.identity, followed_timelines(build.pipeline))
    # Views of an attempt that never came to write have no target, and could not be promoted.
    generation.note_views([view.name for view in build.views], anew=build.definition is not None)
    generation.accepted()


def peek(pipeline: Pipeline, catalogue: Catalogue, generation: Generation) -> Opened:
    """A generation as whoever runs it has it, without taking it: writes carry the holder's token.

    Raises:
        ConfigError: its views do not fit the source's tables (terminal).
    """
    holder = generation.lease.holder()
    catalogue = known_to(pipeline, generation, catalogue)
    defined = going_on(pipeline, generation, catalogue)
    return Opened(
        defined, generation, resolve_views(defined, catalogue, generation.sink), holder.token if holder else 0
    )


def identity(pipeline: Pipeline, catalogue: Catalogue, ids: Mapping[str, str], spec_hash: str) -> Identity:
    """What a sink's generation is bound to."""
    return Identity(
        system_identifier=str(catalogue.system_identifier),
        timeline=catalogue.timeline,
        database=pipeline.source.database,
        slot=pipeline.source.slot,
        topic_ids=ids,
        spec_hash=spec_hash,
    )
