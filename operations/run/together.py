"""Several pipelines in one process: a thread for each, and none ends another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from cdc.errors import HeadwaterError
from cdc.journal import Line, about
from cdc.saying import Say
from operations.run.patience import Asked

# How often the main thread, the only one that signals reach, looks whether the others have ended.
LOOK_SECONDS = 0.5


def together(runs: Mapping[str, Callable[[], bool]], say: Say) -> bool:
    """Run pipelines side by side until each of them has ended.

    Args:
        runs: what runs a pipeline and returns whether it has failed, by the pipeline's name.
        say: is told what ends a pipeline while others go on.

    Returns:
        whether one has failed.

    Raises:
        Exception: the first that has ended a pipeline, once all have ended.
    """
    failed: dict[str, bool] = {}
    errors: dict[str, Exception] = {}

    def one(name: str, run: Callable[[], bool]) -> None:
        with about(pipeline=name):
            try:
                failed[name] = run()
            except Asked:  # told to end before anything ran
                failed[name] = False
            except Exception as error:
                errors[name] = error
                code = error.code if isinstance(error, HeadwaterError) else HeadwaterError.code
                say(Line(f"error [{code}]: {error}", pipeline=name))

    threads = [threading.Thread(target=one, args=pair, name=f"run {pair[0]}") for pair in runs.items()]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(LOOK_SECONDS)
    if errors:
        raise next(iter(errors.values()))
    return any(failed.values())
