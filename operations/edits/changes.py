"""What a changed file asks of a process that runs an older one. What only `apply` reads asks nothing of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from cdc.pipeline import IcebergSink, Pipeline, Sink
from cdc.pipeline.fields import Part
from operations.edits.sends import Sent, sends_between
from operations.generations.outdated import asked, gone_back_from, taken_back
from operations.opened import kept_tables, named_tables
from operations.state.folder import chosen_sinks, register_of
from sinks.iceberg.place import Place
from spark.disk.made_of import as_defined, outdated

# Parts of the file that a running process has been made with: Spark's session, connections, places in the log.
_PARTS = ("source", "kafka", "connect", "row_store", "policy", "engine")
# Of these, what it need not be started again for: `apply` makes topics, publication and connector.
_FREE = frozenset(
    (
        "source.tables",
        "source.setup_user",
        "source.setup_password",
        "source.snapshot_fetch_size",
        "source.heartbeat_seconds",
        "source.format",
        "kafka.partitions",
        "kafka.replication_factor",
        "kafka.segment_hours",
        "connect.options",
        "policy.dead_letters.keep_days",
    )
)


@dataclass(frozen=True)
class Changes:
    """What a process has to do to go by the new file; empty when nothing that it sees has changed.

    Attributes:
        added: sinks that are taken up.
        removed: sinks that are let go; what they hold stays.
        rebuilt: sinks of which a next generation is built, and in what the file differs from the living one; not one
            that readers were taken back from.
        gone_back: sinks of which the file asks for what readers were taken back from -> that generation.
        outlived: what a rebuilt sink has kept of earlier replacements, which goes once the next one is shown.
        widened: sinks of all tables that were none before, or for which more tables are captured: they take up what
            they do not keep yet, and are opened anew for that.
        perhaps: those of ``widened`` that keep every table that the file names: only its schemas may have others.
        reopened: generations (sink, number) that are opened anew, with new settings or without a table that is captured
            no more; they go on where they were.
        sends: webhooks, topics and standing queries that begin, end or change.
        others: sinks that differ, and that the process was started without.
        beside: those of ``others`` that another process has now -> what that one has to do for them.
        restart: keys for which the process must be started again; then it takes up nothing of the file.
        unread: why the file that it goes by can't be read here, as what will become of this one is not known then.
    """

    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    rebuilt: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone_back: Mapping[str, int] = field(default_factory=dict)
    outlived: Mapping[str, Sequence[int]] = field(default_factory=dict)
    widened: Sequence[str] = ()
    perhaps: Sequence[str] = ()
    reopened: Sequence[tuple[str, int]] = ()
    sends: Sequence[Sent] = ()
    others: Sequence[str] = ()
    beside: Mapping[str, Changes] = field(default_factory=dict)
    restart: Sequence[str] = ()
    unread: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As ``plan --json`` shows it."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "rebuilt": {sink: list(because) for sink, because in self.rebuilt.items()},
            "gone_back_from": dict(self.gone_back),
            "outlived": {sink: list(numbers) for sink, numbers in self.outlived.items()},
            "widened": list(self.widened),
            "reopened": sorted({sink for sink, _ in self.reopened}),
            "sends": [one.to_dict() for one in self.sends],
            "others": list(self.others),
            "beside": {sink: changes.to_dict() for sink, changes in self.beside.items()},
            "restart": list(self.restart),
            "unread": self.unread,
        }

    def taken(self, building: Collection[str] = ()) -> int:
        """How many things are done for the file, besides what is built already."""
        own = (self.added, self.removed, self.widened, self.to_dict()["reopened"], self.sends)
        more = len(self.rebuilt.keys() - set(building)) + sum(one.taken(building) for one in self.beside.values())
        return 0 if self.restart else sum(map(len, own)) + more

    def waits(self) -> bool:
        """Whether anything that nobody is sure to take up waits for the file: for a new process, or for another one."""
        left = any(sink not in self.beside or self.beside[sink].waits() for sink in self.others)
        return bool(self.restart) or self.unread is not None or left

    def lines(self, told: Collection[str] = ()) -> list[str]:
        """What will become of the file in that process, a line each; ``told``: sinks whose rebuild was told already."""
        if self.restart:
            return [f"run must be started again for {', '.join(self.restart)}: until then it goes on with the old file"]
        if self.unread is not None:
            unknown = "what becomes of this one is seen once it is applied (`file` in status)"
            return [f"the file that run goes by can't be read here ({self.unread}): {unknown}"]
        said = [f"run takes up sink {sink}" for sink in self.added]
        more = ", and no other goes on with it: call a sink that was only renamed as before" if self.added else ""
        said += [f"run lets go of sink {sink}; what it holds stays{more}" for sink in self.removed]
        for sink, because in self.rebuilt.items():
            if sink not in told:
                said.append(f"run builds the next generation of sink {sink}, because {', '.join(because[:5])}")
        for sink, left in self.gone_back.items():
            if sink not in told:
                said.append(f"run builds nothing of sink {sink}: {taken_back(sink, left, 'FILE')}")
        for sink, numbers in self.outlived.items():
            which = f"generation{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            said.append(f"run removes {which} of sink {sink} once that is shown: `rollback` keeps the one before it")
        for sink in self.widened:
            joining = f"run has sink {sink} take up the captured tables that it does not keep yet"
            anew = (
                ", if there are any, and opens it anew then" if sink in self.perhaps else ", and opens it anew for that"
            )
            said.append(f"{joining}{anew}: what it keeps stands still meanwhile")
        anew = "as the file has it and its tables: what it keeps stands still meanwhile"
        said += [f"run opens sink {sink} anew, {anew}" for sink in self.to_dict()["reopened"]]
        said += [one.line() for one in self.sends]
        for sink in self.others:
            if sink in self.beside:
                said += [f"another {line}" for line in self.beside[sink].lines(told)]
            else:
                newest = f"the run that was started last does nothing about sink {sink} (--sink)"
                said.append(f"{newest}; another one that has it takes that up")
        return said


def changes_between(old: Pipeline, new: Pipeline, only: Sequence[str] = ()) -> Changes:
    """What a process that runs ``old`` has to do for ``new``.

    Args:
        old: as the process has it.
        new: as it was applied.
        only: the sinks that the process runs; none for all.
    """
    restart = _restart(old, new)
    mine = [name for name in chosen_sinks(old, only) if name in new.sinks]
    for name in mine:
        if old.sinks[name].type != new.sinks[name].type:
            restart.append(f"sinks.{name}.type (another kind of sink: give it another name)")
        restart += [f"sinks.{name}.{key}" for key in other_catalogue(old.sinks[name], new.sinks[name])]
    if only and not mine:
        restart.append(f"sinks ({', '.join(only)}, which it was started for, is gone)")
    if restart:
        return Changes(restart=tuple(restart))
    rebuilt, outlived, gone_back = {}, {}, {}
    for name in mine:
        register = register_of(new, name)
        if because := asked(new, register):
            rebuilt[name] = because
            if before := [one.number for one in register.previous()]:
                outlived[name] = before
        elif (left := gone_back_from(new, register)) is not None:
            gone_back[name] = left
    widened = tuple(name for name in mine if name not in rebuilt and _widened(old, new, name))
    return Changes(
        added=tuple(name for name in new.sinks if name not in old.sinks and not only),
        removed=tuple(name for name in chosen_sinks(old, only) if name not in new.sinks),
        rebuilt=rebuilt,
        gone_back=gone_back,
        outlived=outlived,
        widened=widened,
        perhaps=tuple(name for name in widened if _keeps_named(new, name)),
        reopened=tuple((name, number) for name in mine for number in _reopened(old, new, name)),
        sends=sends_between(old, new, only),
        others=_others(old, new, only) if only else (),
    )


def _widened(old: Pipeline, new: Pipeline, sink: str) -> bool:
    """Whether a sink of all tables comes to keep others: it named some before, or the file has more of them captured.
    One that is captured again it keeps already. Of a schema that is new in the file nobody knows here what is in it."""
    if new.sinks[sink].tables != "all":
        return False
    if old.sinks[sink].tables != "all":
        return True
    register = register_of(new, sink)
    kept = kept_tables(new, register.generation(register.living()))
    return any(not old.captures(table) and table not in kept for table in new.source.tables)


def _others(old: Pipeline, new: Pipeline, only: Collection[str]) -> tuple[str, ...]:
    """Sinks that come, go or differ, with their views, beside those that a process was started for."""

    def said(pipeline: Pipeline, name: str) -> Any:
        sink = pipeline.sinks.get(name)
        return None if sink is None else (sink, [pipeline.views.get(view) for view in sink.view_names])

    names = dict.fromkeys((*new.sinks, *old.sinks))
    return tuple(name for name in names if name not in only and said(old, name) != said(new, name))


def _keeps_named(new: Pipeline, sink: str) -> bool:
    register = register_of(new, sink)
    kept = kept_tables(new, register.generation(register.living()))
    return all(table in kept or table.endswith(".*") for table in new.source.tables)


def other_catalogue(old: Sink, new: Sink) -> list[str]:
    """The keys by which a warehouse is reached otherwise; none of other sinks. Pure.

    Spark keeps a catalogue as it was when a session first named it, and all else (pyiceberg, DuckDB) opens it anew: the
    flows would go on in the old one, or with the old token, and everybody else look at the new one.

    Args:
        old, new: the sink in two files.
    """
    if not isinstance(old, IcebergSink) or not isinstance(new, IcebergSink):
        return []
    before, after = Place.of(old), Place.of(new)
    keys = [one.name for one in fields(Place) if one.name != "namespace"]  # of another namespace a generation is built
    return [key for key in keys if getattr(before, key) != getattr(after, key)]


def _restart(old: Pipeline, new: Pipeline) -> list[str]:
    found = []
    for part in _PARTS:
        before, after = getattr(old, part), getattr(new, part)
        if before is None or after is None:
            found += [part] if before is not after and part != "row_store" else []
            continue
        names = [f"{part}.{name}" for name in type(before).model_fields]
        found += [name for name in names if _differs(name, *(attrgetter(name)(one) for one in (old, new)))]
    return found


def _differs(name: str, before: Any, after: Any) -> bool:
    """Whether a key, or one below it, was changed that a process must be started again for."""
    if isinstance(before, Part) and isinstance(after, Part):
        below = type(before).model_fields
        return any(_differs(f"{name}.{one}", getattr(before, one), getattr(after, one)) for one in below)
    return name not in _FREE and bool(before != after)


def _reopened(old: Pipeline, new: Pipeline, sink: str) -> list[int]:
    """Kept generations that would be opened otherwise: addresses, passwords, knobs; what they hold is as defined."""
    register = register_of(new, sink)
    found = []
    for number in register.kept():
        generation = register.generation(number)
        before, after = as_defined(old, generation), as_defined(new, generation)
        views = {name: (before.views.get(name), after.views.get(name)) for name in after.sinks[sink].view_names}
        differs = before.sinks[sink] != after.sinks[sink] or any(one != other for one, other in views.values())
        # One that has written nothing takes the file as it is now (operations/opened.py), whatever it was defined as.
        undone = not generation.started and bool(outdated(new, generation))
        if differs or undone or _other_tables(old, new, after, sink):
            found.append(number)
    return found


def _other_tables(old: Pipeline, new: Pipeline, defined: Pipeline, sink: str) -> bool:
    """Whether a warehouse of all tables keeps one that is captured no more, whose flow has nothing to do, or one that
    is captured again, whose flow was left out: it is in the definition already, so nobody takes it up as a new one.
    Documents of all tables are kept by one flow, which reads on where that table's topic stands still."""
    part = new.sinks[sink]
    tables = named_tables(defined.sinks[sink]) if part.tables == "all" and part.form == "columns" else []
    return any(old.captures(table) != new.captures(table) for table in tables)
