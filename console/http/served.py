"""The pipelines that a server answers for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdc.errors import ConfigError, HeadwaterError, UnknownName
from cdc.pipeline import Pipeline, load
from operations.freshness.waits import Waits
from operations.jobs.jobs import Jobs
from operations.letters.writes import WriteLetters
from operations.overview.watching import Watching
from operations.state.folder import register_of
from spark.disk.files import stamp


class Served:
    """One pipeline file; a changed one is read again at the next question.

    Args:
        file: its path.

    Attributes:
        watching: what the pages show; begins with ``Pipelines.watch``.
        jobs: what somebody has asked to be done.

    Raises:
        PipelineFileError: it can't be used (terminal).
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._stamp = stamp(file)
        self._pipeline = load(file)
        self._waits = Waits(self._pipeline, WriteLetters(self._pipeline))
        self.watching = Watching(lambda: self.pipeline, lambda: self.waits)
        self.jobs = Jobs(lambda: self.pipeline)

    @property
    def pipeline(self) -> Pipeline:
        """As the file says now; as it said last, while it is wrong."""
        with self._lock:
            self._follow()
            return self._pipeline

    @property
    def waits(self) -> Waits:
        """Who waits for its writes."""
        with self._lock:
            self._follow()
            return self._waits

    def close(self) -> None:
        """End all waits, what watches, and what is being done."""
        self.watching.close()
        self.jobs.close()
        self._waits.close()

    def _follow(self) -> None:
        now = stamp(self.file)
        if now == self._stamp:
            return
        self._stamp = now
        try:
            pipeline = load(self.file)
        except HeadwaterError:
            return  # `check` and `status` say what is wrong with it; what runs goes on
        before, self._pipeline, self._waits = self._waits, pipeline, Waits(pipeline, WriteLetters(pipeline))
        threading.Thread(target=before.retire, name="waits of a former file", daemon=True).start()


class Pipelines:
    """All pipelines of a server, by the name that each has now: a file may be given another one meanwhile.

    Args:
        files: pipeline files.

    Raises:
        ConfigError: two of one name.
        PipelineFileError: one can't be used (terminal).
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._served = [Served(file) for file in files]
        for name in self.names:
            self.get(name)

    def __iter__(self) -> Iterator[Served]:
        """Each of them."""
        return iter(self._served)

    @property
    def names(self) -> list[str]:
        """Their names."""
        return sorted({one.pipeline.name for one in self})

    def get(self, name: str | None) -> Served:
        """The pipeline of this name; the only one without a name.

        Raises:
            UnknownName: there is none, or several to choose from.
            ConfigError: two of this name (terminal).
        """
        found = [one for one in self if name in (None, one.pipeline.name)]
        if len(found) == 1:
            return found[0]
        if name is not None and found:
            files = " and ".join(str(one.file) for one in found)
            raise ConfigError(f"{files} are both called {name}", fix="name one of them")
        what = "this server has several pipelines" if name is None else f"there is no pipeline {name} here"
        raise UnknownName(what, fix=f"add ?pipeline= with one of {', '.join(self.names)}")

    def watch(self) -> None:
        """Begin to look at all of them in the background."""
        for one in self:
            one.watching.start()

    def close(self) -> None:
        """End all waits."""
        for one in self:
            one.close()


def known_sinks(pipeline: Pipeline, names: Iterable[str]) -> list[str]:
    """These sinks; all without a name.

    Raises:
        UnknownName: one that the file does not have.
    """
    wanted = list(names)
    for name in wanted:
        if name not in pipeline.sinks:
            raise UnknownName(f"no sink {name} in {pipeline.name}", fix=f"choose from {', '.join(pipeline.sinks)}")
    return wanted or list(pipeline.sinks)


def known_views(pipeline: Pipeline, sinks: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """These views; all without a name. One that readers see is known, whether the file still names it or not.

    Raises:
        UnknownName: one that a sink does not keep: whoever waits for it there would be told of the others.
    """
    wanted = tuple(names)
    for sink in sinks if wanted else ():
        seen = register_of(pipeline, sink).generation().views()
        kept = tuple(dict.fromkeys((*pipeline.sinks[sink].view_names, *seen)))
        for name in wanted:
            if name not in kept:
                raise UnknownName(f"sink {sink} has no view {name}", fix=f"choose from {', '.join(kept)}")
    return wanted
