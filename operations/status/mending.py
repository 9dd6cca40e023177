"""A failure whose way out is gone already: nobody is asked for what `run` is doing."""

from __future__ import annotations

from dataclasses import replace

from cdc.pipeline import Pipeline
from operations.state.accepted import living_runs
from operations.status.judgement import Judgement
from spark.disk.register import Register

# With it begins the command by which whoever mends what a generation can't follow, or has lost, has another one built.
REBUILD = "`headwater rebuild"


def carried_out(pipeline: Pipeline, register: Register, judged: Judgement) -> Judgement:
    """A judgement without its remedy where that is another generation, and `run` builds just that from the file that
    was applied: the file is corrected by then, or `apply` would have refused it.

    Args:
        pipeline: the loaded file.
        register: the sink's generations.
        judged: of the sink, or of one of its flows.

    Returns:
        as it was, if nobody builds one.
    """
    if judged.judgement != "failed" or REBUILD not in (judged.remedy or ""):
        return judged  # the notes of what runs are read for nothing else
    if not any(register.sink in running.building for running in living_runs(pipeline)):
        return judged
    living = register.living()
    filled = [one.number for one in register.entries() if one.stage == "filling" and one.number > living]
    how = f"generation {filled[-1]} is being filled" if filled else "its next generation is about to be filled"
    return replace(judged, cause=f"{judged.cause}; the file that was applied mends it: {how}", remedy=None)
