"""The steps by which a cache that has forgotten is made again: what `run` has done for it in processes of their own.

Named as the verbs that do the same: the names stand in ``status`` and in the log. They go by the file that `run` goes
by, and read none: one that was only saved, half written or moved away is nobody's word. What they need is imported by
the process that does it.
"""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.saying import Say

# Why a generation is made that nobody has asked for.
LOST = "the sink had lost what was written"


def rebuild(say: Say, pipeline: Pipeline, file: Path, sink: str, master: str | None, why: str = "asked for") -> None:
    """A generation from offset 0; asked to end, it stops where the next attempt goes on."""
    from operations.rebuild.chosen import Chosen
    from operations.rebuild.rebuild import Rebuild
    from operations.run.flow_lines import lines
    from operations.run.machines import with_master
    from operations.run.patience import Stop

    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    made, shown = with_master(pipeline, master), partial(lines, say)
    Rebuild(Chosen(made, file, sink, say, why=why), 1.0, stop, shown).run(auto=False)


def promote(say: Say, pipeline: Pipeline, _file: Path, sink: str, number: int) -> None:
    """However far it is behind: readers have nothing meanwhile."""
    from operations.generations import promote as generations

    entry = generations.candidate(pipeline, sink, number, "ready", "previous", "living")
    generations.promote(pipeline, sink, entry.number, say, behind_too=True)


def retire(say: Say, pipeline: Pipeline, _file: Path, sink: str, number: int) -> None:
    """What was lost, with what is left of it."""
    from operations.generations.retire import retire as retired

    retired(pipeline, sink, number, say)


def verify(say: Say, pipeline: Pipeline, _file: Path, sink: str, number: int) -> bool:
    """Whether it equals Postgres.

    Raises:
        HeadwaterError: that could not be seen.
    """
    from operations.rebuild.compared import compare

    report = compare(say, pipeline, sink, number)
    if error := report["sinks"][0]["error"]:
        raise HeadwaterError(error)
    return bool(report["equal"])
