"""Are the sinks right? Row by row, against Postgres itself; what was found, as data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline


Progress = Callable[[str], None]


def verify_report(
    pipeline: Pipeline,
    only: Sequence[str] = (),
    wait: float = 0.0,
    progress: Progress = lambda line: None,
    *,
    repair: bool = False,
    sample: int | None = None,
    seed: int = 0,
    generation: int | None = None,
) -> dict[str, Any]:
    """Compare the sinks; the shape of ``--json``.

    Args:
        pipeline: the loaded file.
        only: sink names; none for all.
        wait: seconds that a sink may take to catch up when something differs.
        progress: told a line for each view.
        repair: write what differs anew.
        sample: compare so many random rows and documents only.
        seed: of the sample.
        generation: which one; None for the one that readers see.
    """
    from operations.verify.verifier import Asked

    return verified(pipeline, Asked(only, wait, repair, sample, seed, generation), progress)


def verified(
    pipeline: Pipeline,
    asked: Any,
    progress: Progress = lambda line: None,
    on_pause: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """As ``verify_report``, by a ``operations.verify.verifier.Asked``; ``on_pause`` is called while it waits."""
    from operations.state.catalogue import source_catalogue
    from operations.state.verified import note_verified
    from operations.verify.verifier import Verifier

    started = time.monotonic()
    verifier = Verifier(pipeline, source_catalogue(pipeline), asked, progress, on_pause)
    try:
        sinks = verifier.sinks()
    finally:
        verifier.close()
    report: dict[str, Any] = {
        "pipeline": pipeline.name,
        "at": time.time(),
        "seconds": round(time.monotonic() - started, 3),
        "equal": all(
            sink["error"] is None and not any(view["differences"] for view in sink["views"]) for sink in sinks
        ),
        "sample": None if asked.sample is None else {"rows": asked.sample, "seed": asked.seed},
        "source_rows": verifier.source_rows,
        "sinks": sinks,
    }
    note_verified(pipeline, report)
    return report
