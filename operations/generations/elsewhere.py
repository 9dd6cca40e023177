"""Whether a generation is still the one that its state folder knows: somebody else may have gone on with the sink.

A state folder may be copied to another machine, be lost, or be put back from an older copy; then what stands in it is
no longer what was done. Two things tell, and both are in the target:

- *The newest lease token that has claimed it.* Every flow notes its own before it claims. A newer one was another
  process's, with a state folder of its own: of `run` on another machine, or of this folder after the copy was made.
  Without this two machines whose services start `run` again and again would take the sink from each other for ever.
- *The generation that readers see.* A register from before a promotion would have another one kept up to date, and
  `status` would call that well, while what readers see stands still.

Docs: docs/runbooks.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc.errors import Fenced, StateError
from cdc.pipeline import Pipeline
from operations.opened import Opened
from operations.state.folder import registers_of
from sinks.configure import plain_config
from sinks.contract import Target
from sinks.factory import open_target
from spark.disk.files import write_atomic
from spark.disk.promotion import Promotion
from spark.disk.register import Register, Stage
from spark.disk.state import CLAIM, rebuild_command
from spark.flow import Flow

# A promotion may move readers between two looks; one moves them within milliseconds, and not twice in a second.
LOOKS = 2


def refuse_elsewhere(build: Opened, flow: Flow) -> None:
    """Look at the targets of a flow that is to start, and note that this process is about to claim them.

    Raises:
        Fenced: another state folder's process has claimed one since (terminal).
        StateError: readers see a generation that they should not see, as far as is known here (terminal).
        SinkUnavailable: its server does not answer (transient).
    """
    views, noted = list(flow.spec.views), noted_claim(flow.folder)
    opened = open_target(plain_config(build.pipeline, build.sink, build.number, views))
    try:
        for view in views:
            refuse_claimed(flow, view, opened.claimed(view), noted, build.token)
            _refuse_unseen(build, opened, view, new=flow.is_new)
    finally:
        opened.close()
    # Before it claims: a process that is killed in between must not be taken for another folder's.
    note_claim(flow.folder, build.token)


def _refuse_unseen(build: Opened, opened: Target, view: str, *, new: bool) -> None:
    sink, number = build.sink, build.number
    register = Register(build.generation.state_dir, build.generation.pipeline, sink)
    for _ in range(LOOKS):
        seen = opened.living(view)  # before the register, which a promotion changes after the target
        stages = {entry.number: entry.stage for entry in register.entries()}
        if not is_strange(number, stages, register.promotion(), seen, new=new):
            return
    raise StateError(
        f"sink {sink}: readers of {view} see generation {seen}, and {register.folder} knows generation"
        f" {register.living()} as the one that they see",
        means="the state folder is older than the sink, or was lost; generation "
        f"{number} would be kept up to date, which nobody reads, and what readers see would stand still",
        fix=f"point engine.state_dir at the newest state; or {rebuild_command(sink)}",
    )


def is_strange(
    number: int, stages: Mapping[int, Stage], begun: Promotion | None, seen: int | None, *, new: bool
) -> bool:
    """Whether what readers see contradicts the register. Pure.

    Args:
        number: the generation that is to be run.
        stages: the register's.
        begun: a promotion that has not ended: readers may see either end of it.
        seen: the generation that readers see; None where nobody has shown one yet.
        new: the flow has never run: a view that the living generation has got besides may be shown by an older one yet.
    """
    if seen is None or (begun is not None and seen in (begun.number, begun.origin)):
        return False
    if stages.get(number) == "living":
        return seen != number and not (new and seen in stages)
    # Another one may be shown at a place of its own (its index had another name), but never while it is filled.
    return stages.get(number) == "filling" and seen == number


# -- who has claimed it ------------------------------------------------------------------------------------------------


def refuse_claimed(flow: Flow, view: str, claimed: int | None, noted: int | None, token: int) -> None:
    """Refuse a target that was claimed since by a process that this folder knows nothing of. Pure.

    Args:
        flow: that is to start.
        view: whose target it is.
        claimed: the newest token that has claimed it; None if none has.
        noted: the newest that a process with this folder has claimed with; None of a folder from before this was noted.
        token: this process's own.

    Raises:
        Fenced: (terminal).
    """
    if claimed is None or noted is None or claimed <= noted or claimed == token:
        return
    raise Fenced(
        f"sink {flow.spec.sink}: another process, with a state folder of its own, has claimed {view} (lease token"
        f" {claimed}) after this folder's last (token {noted})",
        means="`run` goes on elsewhere, or this folder was put back from an older copy; nothing was written",
        fix="nothing, if the other one is meant to run; else end that, and `headwater run FILE --take-over` goes on"
        " from where this folder is: what was applied since is applied again, which changes nothing",
    )


def noted_claim(folder: Path) -> int | None:
    """The token with which a process of this folder has claimed a flow's targets last; None if none was noted."""
    try:
        return int(json.loads((folder / CLAIM).read_text())["token"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def note_claim(folder: Path, token: int) -> None:
    """Note the token with which this process is about to claim a flow's targets."""
    if noted_claim(folder) != token:
        write_atomic(folder / CLAIM, json.dumps({"token": token}))


def take_over(pipeline: Pipeline, only: Sequence[str]) -> None:
    """Forget what was claimed: whoever starts next takes the sinks over, from wherever this folder is.

    Args:
        pipeline: the loaded file.
        only: the sinks that are meant; none for all.
    """
    for register in registers_of(pipeline, only).values():
        for number in register.written():
            generation = register.generation(number)
            for name in generation.flows():
                (generation.flow_folder(name) / CLAIM).unlink(missing_ok=True)
