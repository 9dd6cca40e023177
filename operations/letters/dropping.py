"""``letters drop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc.pipeline import Pipeline
from operations.letters.found import find_letters
from operations.letters.listing import causes, head
from operations.letters.wanted import Wanted


def drop_letters(
    pipeline: Pipeline,
    wanted: Wanted,
    *,
    dry_run: bool = False,
    ask: Callable[[dict[str, Any]], None] = lambda _report: None,
) -> dict[str, Any]:
    """Forget letters, those that stand and those that are healed. What the sinks hold is not touched.

    Args:
        pipeline: the loaded file.
        wanted: which.
        dry_run: only tell which.
        ask: called with the report before anything is forgotten; only what it names is forgotten. Raises where that is
            not to be.

    Raises:
        ConfigError, KafkaError, KafkaUnavailable: as ``letters_report``; what was not cleared still stands.
    """
    found = find_letters(pipeline, wanted)
    report = {**head(pipeline, found), "causes": causes(found), "dropped": 0}
    if not dry_run:
        ask(report)
        both = found.standing | found.healed
        found.log.clear({key: logged.at for key, logged in both.items()})
        report["dropped"] = len(both)
    return report
