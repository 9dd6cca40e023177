"""Whether a generation is still the one that its state folder knows: somebody else may have gone on with the sink.

A state folder may be copied to another machine, be lost, or be put back from an older copy; then what stands in it is
no longer what was done. And what stands in the target is no longer what was written to it after that was put back from
an older copy. Two things tell, and both are in the target:

- *The newest lease token that has claimed it.* Every flow notes its own before it claims. A newer one was another
  process's, with a state folder of its own: of `run` on another machine, or of this folder after the copy was made.
  Without this two machines whose services start `run` again and again would take the sink from each other for ever.
  An older one is that of a copy from before (a snapshot of a search server), which lacks what was applied since: the
  flow goes on behind that. Once it has claimed, each flow notes that too, because only then there is no older one.
- *The generation that readers see.* A register from before a promotion would have another one kept up to date, and
  `status` would call that well, while what readers see stands still.

Docs: docs/runbooks.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc.errors import DiskFull, Fenced, SinkRefused, StateError
from cdc.pipeline import Pipeline
from operations.opened import Opened
from operations.state.folder import registers_of
from operations.state.history import FORMER, STREAM, history_folder
from sinks.configure import plain_config
from sinks.contract import Target
from sinks.factory import open_target
from spark.disk.files import write_atomic
from spark.disk.promotion import Promotion
from spark.disk.register import Register, Stage
from spark.disk.state import CLAIM, rebuild_command
from spark.flow import Flow, has_set_up
from spark.wanted import refuse_unwanted

_log = logging.getLogger(__name__)

# A promotion may move readers between two looks; one moves them within milliseconds, and not twice in a second.
LOOKS = 2


def refuse_elsewhere(build: Opened, flow: Flow) -> None:
    """Look at the targets of a flow that is to start, and note that this process is about to claim them.

    Raises:
        Fenced: another state folder's process has claimed one since (terminal).
        SinkRefused: one was put back from an older copy (terminal).
        StateError: readers see a generation that they should not see, as far as is known here (terminal).
        SinkUnavailable: its server does not answer (transient).
        StateError: its flow was told to end meanwhile (terminal).
    """
    views, noted, made = list(flow.spec.views), noted_claim(flow.folder), made_claims(flow.folder)
    opened = open_target(plain_config(build.pipeline, build.sink, build.number, views))
    try:
        for view in views:
            refuse_claimed(build.sink, view, opened.claimed(view), noted, build.token)
            if has_set_up(flow.folder):  # who has not made it ready yet has written nothing that could lack
                refuse_put_back(flow, view, opened.oldest_claim(view), made.get(view))
            _refuse_unseen(build, opened, view, new=flow.is_new)
    finally:
        opened.close()
    refuse_unwanted()
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


def refuse_claimed(sink: str, view: str, claimed: int | None, noted: int | None, token: int) -> None:
    """Refuse a target that was claimed since by a process that this folder knows nothing of. Pure.

    Args:
        sink: whose it is.
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
        f"sink {sink}: another process, with a state folder of its own, has claimed {view} (lease token"
        f" {claimed}) after this folder's last (token {noted})",
        means="`run` goes on elsewhere, or this folder was put back from an older copy; nothing was written",
        fix="nothing, if the other one is meant to run; else end that, and `headwater run FILE --take-over` goes on"
        " from where this folder is: what was applied since is applied again, which changes nothing",
    )


def refuse_put_back(flow: Flow, view: str, shown: int | None, made: int | None) -> None:
    """Refuse a target that shows an older claim than the one that was made last. Pure.

    Args:
        flow: that is to start, and has written to it.
        view: whose target it is.
        shown: the token that all of it shows; None if none does.
        made: with which the flow has claimed it last; None if that was not noted.

    Raises:
        SinkRefused: (terminal).
    """
    if shown is None or made is None or shown >= made:
        return
    raise SinkRefused(
        f"sink {flow.spec.sink}: the target of {view} was put back from an older copy: it was claimed last with lease"
        f" token {shown}, and {flow.title} has written to it with token {made}",
        means="it lacks what was applied after that copy was made, and the flow is behind that in the log; nothing was"
        " written",
        fix=rebuild_command(flow.spec.sink),
    )


def _note(folder: Path) -> Mapping[str, Any]:
    try:
        note = json.loads((folder / CLAIM).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def noted_claim(folder: Path) -> int | None:
    """The token with which a process of this folder has claimed a flow's targets last, or was about to; None if none
    was noted."""
    token = _note(folder).get("token")
    return token if isinstance(token, int) else None


def note_claim(folder: Path, token: int) -> None:
    """Note the token with which this process is about to claim a flow's targets."""
    note = _note(folder)
    if note.get("token") != token:
        write_atomic(folder / CLAIM, json.dumps({**note, "token": token}))


def made_claims(folder: Path) -> Mapping[str, int]:
    """View -> the token with which it was claimed last; of a process that was killed just then, that of before."""
    made = _note(folder).get("made")
    return {view: token for view, token in made.items() if isinstance(token, int)} if isinstance(made, dict) else {}


def note_made(flow: Flow, token: int) -> None:
    """Note that a flow has claimed its targets. What can't be noted does not stop it: less will be seen later."""
    made = dict.fromkeys(flow.spec.views, token)
    if made_claims(flow.folder) == made:
        return
    try:
        write_atomic(flow.folder / CLAIM, json.dumps({**_note(flow.folder), "made": made}))
    except (OSError, DiskFull) as error:
        _log.debug("that the targets were claimed is not noted: %s", error, extra=flow.about)


def take_over(pipeline: Pipeline, only: Sequence[str]) -> None:
    """Forget what was claimed: whoever starts next takes the sinks over, from wherever this folder is.

    Not that it was: a target that was put back from an older copy lacks as much whoever goes on with it.

    Args:
        pipeline: the loaded file.
        only: the sinks that are meant; none for all.
    """
    for register in registers_of(pipeline, only).values():
        for number in register.written():
            generation = register.generation(number)
            for name in generation.flows():
                folder = generation.flow_folder(name)
                if made := made_claims(folder):
                    write_atomic(folder / CLAIM, json.dumps({"made": made}))
                else:
                    (folder / CLAIM).unlink(missing_ok=True)
        history = history_folder(pipeline, register.sink)
        for place in (history, *(history / FORMER).glob("*")):
            (place / STREAM / CLAIM).unlink(missing_ok=True)
