"""Sinks that the file has no more, and whose state is there: nobody looks into what they hold, so it is told."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import StateError
from cdc.pipeline import IcebergSink
from operations.erase.places import Place
from operations.erase.subject import Subject
from operations.state.folder import left_sinks, pipeline_folder, register_of
from operations.state.history import FORMER, HISTORY, IDENTITY
from spark.disk.notes import glance

# Where its servers are only the file has said.
NOTE = (
    "the file names it no more, so nobody could look: put it back into the file, apply, let `headwater run` read the "
    "delete, and erase again; or remove what it holds (`headwater drop FILE --sink {sink}` by a file that names it; "
    "tables of a history, and generations that are not in the register, yourself), and then this folder, if it is "
    "still there"
)
# There `drop --sink` would empty the sink that the file has now, which is searched as any other.
OF_ANOTHER_TYPE = (
    "the sink of this name in the file is of another type now, so nobody could look into the tables of its {words}: "
    "drop them yourself, in the warehouse that it had, and then remove this folder"
)


def left_places(subject: Subject) -> list[Place]:
    """A place for each of these sinks that has read the table's topic, or may have.

    It counts as one that may hold the row. It is likely to: from what the file names no more nothing is deleted.
    """
    pipeline, found = subject.pipeline, []
    for sink in sorted({*left_sinks(pipeline), *pipeline.sinks}):
        generations = [] if sink in pipeline.sinks else list(_generations(subject, sink))
        histories = sorted(_histories(subject, sink))
        if held := [*generations, *histories]:
            folder = pipeline_folder(pipeline) / sink
            name = str(folder if generations else folder / HISTORY)
            words = ", ".join(held)
            note = (OF_ANOTHER_TYPE if sink in pipeline.sinks else NOTE).format(sink=sink, words=words)
            found.append(Place("sink", name, sink, hidden=len(held), words=words, note=note))
    return found


def _generations(subject: Subject, sink: str) -> Iterator[str]:
    """Those that its register has, and those whose folders are there without it, which `drop` leaves in the target."""
    register = register_of(subject.pipeline, sink)
    try:
        numbers = {entry.number for entry in register.entries()}
    except StateError as error:
        yield error.what
        return
    folders = (path.name.removeprefix("g") for path in register.folder.glob("g[0-9]*"))
    for number in sorted(numbers | {int(name) for name in folders if name.isdecimal()}):
        generation = register.generation(number)
        try:
            known = generation.known()
        except StateError:
            known = None
        if generation.started and (known is None or subject.topic in known.topic_ids):
            yield f"generation {number}" + ("" if number in numbers else " (not in the register)")


def _histories(subject: Subject, sink: str) -> Iterator[str]:
    """Those in no warehouse of the file's: a sink of that name may be of another kind by now."""
    if isinstance(subject.pipeline.sinks.get(sink), IcebergSink):
        return
    folder = pipeline_folder(subject.pipeline) / sink / HISTORY
    for path in [folder / IDENTITY, *(folder / FORMER).glob(f"*/{IDENTITY}")]:
        if path.exists():
            unread = {"topic_ids": [subject.topic]}
            bound = glance(path, lambda note: {**note, "topic_ids": [*note["topic_ids"]]}, unread, withheld=True)
            if subject.topic in bound["topic_ids"]:
                yield f"history ({bound.get('namespace', 'nobody knows where')})"
