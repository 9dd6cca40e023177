"""Is a process at work on every sink? From the status files alone: cheap enough to be asked every few seconds."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.pipeline import Pipeline

# A flow that waits for its server is well: a new process would wait as well.
_WELL = ("starting", "running", "filling", "retrying", "finished")
# One that hangs without a word may be helped by a new process, and disturbs the other sinks by it: not before this.
# A server that is away, or a connector that is dead, is told otherwise, and no new process would help.
HANGS_SECONDS = 900.0


def ailments(pipeline: Pipeline, only: Sequence[str] = ()) -> list[str]:
    """What is wrong with the living generations' flows, a line each; empty when all are at work.

    Args:
        pipeline: the loaded file.
        only: these sinks; all if empty.
    """
    from operations.state.accepted import runs_without
    from operations.state.folder import chosen_sinks, register_of
    from operations.state.losses import LossNote
    from operations.state.pausing import rests
    from operations.status.facts import judged
    from spark.disk.status import state_of

    found: list[str] = []
    for sink in chosen_sinks(pipeline, only):
        register = register_of(pipeline, sink)
        lost = LossNote(register.folder).read()
        if lost is not None:
            continue  # it is being made again: a new process would have to begin that anew
        if rests(pipeline, sink):
            continue  # a new process would leave it alone as well
        generation = register.generation()
        state = state_of(None, generation.lease.holder())
        if state == "never run" and runs_without(pipeline, sink):
            continue  # the `run` at work is well by its own file, and is not to be killed for another one
        if generation.refused():
            found.append(f"{sink}: refused")
            continue
        report = judged(pipeline, [sink]).sinks[sink]
        hanging, states = report.flows, generation.states()
        # One that was just resumed is said to be stopped until the `run` at work takes it up, which must not be killed.
        coming = {flow for flow, one in hanging.items() if one.judged.judgement == "starting"}
        found += [
            f"{sink}, {flow}: {state}" for flow, state in states.items() if state not in _WELL and flow not in coming
        ]
        never = not states and state not in _WELL
        if never and report.judged.judgement != "starting":
            found.append(f"{sink}: never run")
        found += [
            f"{sink}, {flow}: stalled: {one.judged.cause}"
            for flow, one in hanging.items()
            if one.judged.judgement == "stalled" and (one.still or 0.0) > HANGS_SECONDS
        ]
        history = report.history  # one that has failed fails in a new process as well, which the sinks would pay for
        if history is not None and history.judged.judgement == "stalled" and (history.still or 0.0) > HANGS_SECONDS:
            found.append(f"{sink}: stalled: {history.judged.cause}")
    return found
