"""One command at a time with a state folder: a lock of a file, which goes with its process, also if that is killed."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from cdc.errors import StateError
from cdc.pipeline import Pipeline
from operations.state.folder import numbered_state_dir, pipeline_folder

# Locked as long as somebody erases, or applies a file (operations/erase/note.py).
ERASING = "erasing.lock"

# Whoever looks whether a lock is held (``is_held``) has it for a moment, which is over long before.
LOOK_SECONDS = 0.5


@contextmanager
def alone(pipeline: Pipeline, lock: str, busy: StateError) -> Iterator[None]:
    """Hold a lock for the time of a block.

    Args:
        pipeline: the loaded file.
        lock: the file's name, in the pipeline's state.
        busy: raised if somebody else has it, and not just looks at it.

    Raises:
        StateError: ``busy`` (terminal).
    """
    with (numbered_state_dir(pipeline) / pipeline.name / lock).open("a") as handle:
        looked_at = retry_if_exception_type(BlockingIOError)
        again = Retrying(stop=stop_after_delay(LOOK_SECONDS), wait=wait_fixed(0.02), retry=looked_at, reraise=True)
        try:
            again(fcntl.flock, handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise busy from error
        yield


def is_held(pipeline: Pipeline, lock: str) -> bool:
    """Whether somebody holds a lock just now.

    Args:
        pipeline: the loaded file.
        lock: the file's name, in the pipeline's state.
    """
    try:
        with (pipeline_folder(pipeline) / lock).open() as handle:
            # Shared, so that two who look are not in each other's way; whoever wants it tries again.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
