"""Are the sinks right? Row by row, against Postgres itself; what was found, as data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cdc.saying import Say, to_nobody

if TYPE_CHECKING:
    from cdc.pipeline import Pipeline
    from operations.verify.verifier import Asked


def verified(
    pipeline: Pipeline,
    asked: Asked,
    progress: Say = to_nobody,
    on_pause: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Compare the sinks; the shape of ``--json``.

    Args:
        pipeline: the loaded file.
        asked: what is to be done.
        progress: told a line for each view.
        on_pause: called while it waits; may raise to end it.
    """
    from operations.state.catalogue import source_catalogue
    from operations.state.verified import note_verified
    from operations.verify.verifier import Verifier

    started = time.monotonic()
    verifier = Verifier(pipeline, source_catalogue(pipeline), asked, progress, on_pause)
    try:
        sinks = verifier.sinks()
    finally:
        verifier.close()
    right = all(sink["error"] is None and not any(view["differences"] for view in sink["views"]) for sink in sinks)
    nothing = any(sink["still"] for sink in sinks) and not any(sink["views"] for sink in sinks)
    report: dict[str, Any] = {
        "pipeline": pipeline.name,
        "at": time.time(),
        "seconds": round(time.monotonic() - started, 3),
        "equal": right and not nothing,  # of what nobody has looked at it is not known
        "sample": None if asked.sample is None else {"rows": asked.sample, "seed": asked.seed},
        "views": list(dict.fromkeys(asked.views)) or None,
        "source_rows": verifier.source_rows,
        "sinks": sinks,
    }
    if not asked.views:  # of a sink that was compared in part alone nobody knows how it is
        note_verified(pipeline, report)
    return report


def standing_still(report: Mapping[str, Any]) -> str:
    """The views that were not compared because they stand still, as ``sink/view``, with commas; empty if none are.

    Args:
        report: of ``verified``.
    """
    return ", ".join(f"{sink['sink']}/{one['view']}" for sink in report["sinks"] for one in sink["still"])
