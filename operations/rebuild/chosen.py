"""Which generation a rebuild works on: one that was begun or filled is gone on with, if it can be; else a new one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdc.errors import KafkaError, SinkUnavailable, StateError
from cdc.log.ends import LogEnds, lacking, removed
from cdc.pipeline import Pipeline
from cdc.saying import Say
from operations.generations.retire import retire
from operations.opened import same_log
from operations.state.catalogue import source_catalogue
from operations.state.folder import register_of
from operations.state.frozen import read_frozen
from sinks.configure import plain_config
from sinks.factory import open_target
from spark.disk.checkpoint import committed_offsets
from spark.disk.made_of import as_defined, outdated
from spark.disk.process import host_name
from spark.disk.register import Register, Registered
from spark.flow import flow_of, has_set_up
from spark.shorter import SHORTER

OTHER_LOG = "the database or a topic that it was filled from was made anew"


@dataclass(frozen=True)
class Chosen:
    """What of a sink is built beside its living generation.

    Attributes:
        pipeline: the loaded file.
        file: its path, for the commands that are named.
        sink: the sink's name.
        say: told what is given up, and why.
        own: `run` does it by itself, and no person has asked for it.
        why: it is done, where neither the file nor a table says otherwise than what readers see.
    """

    pipeline: Pipeline
    file: Path
    sink: str
    say: Say
    own: bool = False
    why: str = "asked for"

    @property
    def registry(self) -> Register:
        """The sink's generations."""
        return register_of(self.pipeline, self.sink)

    def filled(self) -> Registered | None:
        """One that is filled of what the file says now, and that no reader sees, if target and log are there."""
        ready = self._unless_lost(self.registry.newest("ready"))
        if ready is None or outdated(self.pipeline, self.registry.generation(ready.number)):
            return None
        return None if self.of_other_log(ready.number) else ready

    def of_other_log(self, number: int) -> bool:
        """Whether a generation has read from a database or a topic that is gone: nobody can go on with it."""
        generation = self.registry.generation(number)
        if not generation.started or generation.known() is None:
            return False  # it is bound to what is there when it begins
        return not same_log(self.pipeline, source_catalogue(self.pipeline), generation)

    def to_fill(self) -> Registered:
        """One whose rebuild was cut, if it was made of what the file says now and the log has what it would read next;
        else a new one.

        Raises:
            StateError: one is filled already and waits for a person, or is being filled (terminal).
        """
        while (begun := self._begun()) is None:
            try:
                return self.registry.create(self._what_for(), own=self.own)
            except StateError:
                if self.registry.newest("ready", "filling") is None:
                    raise
                # Somebody has begun one since the look: it is judged as any other.
        return begun

    def _begun(self) -> Registered | None:
        """One whose rebuild was cut, and that can be gone on with; None once none is in the way of a new one. Raises as
        ``to_fill``."""
        if (ready := self._unless_lost(self.registry.newest("ready"))) is not None:
            raise self._waits(ready)
        if (begun := self._unless_lost(self.registry.newest("filling"))) is not None:
            of = self._why_not(begun)
            if of is None:
                if begun.own and not self.own:
                    self.registry.claim(begun.number)
                return begun
            if self.registry.generation(begun.number).lease.busy():  # to be told before anything is taken from it
                raise StateError(f"sink {self.sink}: {of}, and is being filled", fix="end that rebuild, or wait for it")
            self.say(f"{of}: it is given up")
            retire(self.pipeline, self.sink, begun.number, self.say)
        return None

    def _what_for(self) -> str:
        """Why another one is made, for people who look at the sink's generations."""
        living = self.registry.generation(self.registry.living())
        if differs := outdated(self.pipeline, living):
            return ", ".join(differs[:5])
        if not self.own:
            return self.why
        kept = read_frozen(living)
        if altered := sorted(kept.tables.keys() | kept.refused.keys()):
            return ", ".join(f"table {name} was altered" for name in altered[:5])
        return OTHER_LOG if self.of_other_log(living.number) else "begun by `run`"

    def _why_not(self, begun: Registered) -> str | None:
        """Why one that was begun can't be gone on with; None if it can."""
        differs = outdated(self.pipeline, self.registry.generation(begun.number))
        if differs:
            return f"generation {begun.number} was begun from another file ({', '.join(differs[:3])})"
        self._refuse_filled_twice(begun.number)
        if self.of_other_log(begun.number):
            return f"generation {begun.number} can't be gone on with: {OTHER_LOG}"
        if self._cut_off(begun.number):
            return f"generation {begun.number} can't be gone on with: the log has lost what it had not read"
        return None

    def _cut_off(self, number: int) -> bool:
        """Whether the log no longer has what a generation would read next: each attempt would end at that place."""
        generation = self.registry.generation(number)
        defined = as_defined(self.pipeline, generation)
        flows = {flow_of(defined, self.sink, view) for view in generation.views()}
        places = [committed_offsets(generation.flow_folder(flow) / "checkpoint")[1] for flow in sorted(flows)]
        if any((generation.flow_folder(flow) / SHORTER).exists() for flow in flows):
            return True  # its log has become shorter once, and each attempt would be refused for that
        topics = {topic for place in places for topic in place}
        if not topics:
            return False
        log = LogEnds(self.pipeline.kafka.bootstrap, self.pipeline.kafka.options_plain())
        try:
            first, ends = log.bounds(topics)
        except KafkaError:
            return False  # its flows will wait for the brokers
        finally:
            log.close()
        return any(removed(first, place) is not None or bool(lacking(ends, place)) for place in places)

    def _refuse_filled_twice(self, number: int) -> None:
        lease = self.registry.generation(number).lease
        holder = lease.holder()
        if holder is not None and lease.busy():
            raise StateError(
                f"sink {self.sink}: generation {number} is being filled already, by process {holder.pid} on"
                f" {host_name(holder.host)}",
                means="nothing was done; one rebuild of a sink at a time",
                fix=f"wait for it (`headwater status {self.file}` shows how far it is), or end that process:"
                " then this command goes on where it has stopped",
            )

    def _waits(self, ready: Registered) -> StateError:
        """One that is ready is a person's to show or to remove; of another file, it is not what this rebuild is for."""
        retire = f"`headwater retire {self.file} {self.sink} --generation {ready.number}`"
        differs = outdated(self.pipeline, self.registry.generation(ready.number))
        if not differs and self.of_other_log(ready.number):
            return StateError(
                f"sink {self.sink}: generation {ready.number} is ready, and can't be gone on with: {OTHER_LOG}",
                means="somebody has built it, so it is not removed by itself; promoted, it would never change again",
                fix=f"{retire}; then another one is built",
            )
        if not differs:
            return StateError(
                f"sink {self.sink}: generation {ready.number} is ready and waits to be promoted",
                # With --auto it may have been killed while it compared, and a promotion does not compare.
                means="it is filled; whether it was compared with Postgres, `headwater generations` tells",
                fix=f"`headwater verify {self.file} --sink {self.sink} --generation {ready.number}`, then"
                f" `headwater promote {self.file} {self.sink}`; or {retire}",
            )
        return StateError(
            f"sink {self.sink}: generation {ready.number} is ready, and of another file ({', '.join(differs[:3])})",
            means="somebody has built it, so it is not removed by itself; promoted, it would show what that file said",
            fix=f"{retire}; then one of this file is built",
        )

    def _unless_lost(self, entry: Registered | None) -> Registered | None:
        """A generation whose target was lost with its server's data can't be gone on with: it is removed."""
        if entry is None or not self.registry.generation(entry.number).started:
            return entry
        generation = self.registry.generation(entry.number)
        defined = as_defined(self.pipeline, generation)
        # Each flow makes its own targets, when what it needs is there: one that never did has lost nothing.
        flows = {view: generation.flow_folder(flow_of(defined, self.sink, view)) for view in generation.views()}
        views = [view for view, folder in flows.items() if has_set_up(folder)]
        if not views:
            return entry
        opened = open_target(plain_config(defined, self.sink, entry.number, views))
        try:
            if all(opened.there(view) for view in views):
                return entry
        except SinkUnavailable:
            return entry  # its flows will wait for the server
        finally:
            opened.close()
        self.say(f"generation {entry.number} has lost its target: it is given up")
        self.registry.give_up_promotion(entry.number)
        retire(self.pipeline, self.sink, entry.number, self.say)
        return None
