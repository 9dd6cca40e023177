"""The next generation of a sink whose view was changed: what `run` has done in a process of its own."""

from __future__ import annotations

from pathlib import Path

from cdc.pipeline import loads
from cdc.saying import Say
from operations.state.accepted import Text


def build(say: Say, taken: Text, sink: str, master: str | None) -> bool:
    """Build it as the file says that was applied; what was saved since does not count.

    Args:
        say: told what happens, a line each.
        taken: that file.
        sink: the sink's name.
        master: where Spark runs, if not where the file says.

    Returns:
        whether it equals Postgres, and readers see it.
    """
    from operations.rebuild.next_one import build_next
    from operations.run.machines import with_master

    pipeline = with_master(loads(taken.text, taken.file), master)
    return build_next(say, pipeline, Path(taken.file), sink, again=False)
