"""What is changed for a moment, or under way, written down before it is: a kill must not leave it so.

    <state_dir>/<pipeline>/erasing.json     kind -> name -> setting -> what it was; null for a server's own default

                             erasing.lock     locked as long as somebody erases: what is noted then is that one's;
                                              and as long as somebody applies a file, which sets topics' settings too

Whoever erases next puts settings of servers back first; those of topics are set by who applies a file before that. Of
a table whose files are written anew (``tables``) it says since when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cdc.errors import StateError
from cdc.pipeline import Pipeline
from operations.state.alone import ERASING, alone
from operations.state.folder import numbered_state_dir, state_dir
from spark.disk.files import write_atomic

TOPICS = "topics"
Settings = Mapping[str, str | None]
# Puts settings of one thing to what they were: (name, settings).
Back = Callable[[str, Settings], None]


class Note:
    """What has to be put back.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._path: Path = state_dir(pipeline) / pipeline.name / "erasing.json"

    def read(self) -> dict[str, dict[str, dict[str, str | None]]]:
        """What is noted.

        Raises:
            StateError: it can't be read (terminal).
        """
        try:
            found: dict[str, dict[str, dict[str, str | None]]] = json.loads(self._path.read_text())
            return found
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StateError(
                f"{self._path} can't be read: {error}",
                means="settings of topics or indices may be other than they should be",
                fix="`headwater apply FILE` sets the topics' right; then remove that file",
            ) from error

    def alone(self, busy: StateError | None = None) -> AbstractContextManager[None]:
        """Nobody else erases or applies a file for the time of a block.

        Whatever is noted at its begin, a killed erasure has left.

        Not a lock of the database's: that goes with a connection, which breaks while a topic is compacted for minutes.

        Args:
            busy: raised if somebody does; an erasure's own words by default.

        Raises:
            StateError: somebody does (terminal).
        """
        ours = StateError(
            f"another erasure of pipeline {self._pipeline.name} is at work, or an `apply`, or a recapture",
            means="it would take for a topic's own settings what the other has set for a moment; this one has changed "
            "nothing",
            fix="run it again when that one has ended: several keys go one after the other",
        )
        return alone(self._pipeline, ERASING, busy or ours)

    def put_back(self, kind: str, back: Back) -> None:
        """Put everything of a kind back, and forget it."""
        for name, settings in list(self.read().get(kind, {}).items()):
            back(name, settings)
            self._forget(kind, name)

    def forget_topics(self) -> None:
        """Whoever holds the lock has set the topics' settings, or made them anew: what they were is not put back.

        Raises:
            StateError: as ``read``.
        """
        for topic in self.read().get(TOPICS, {}):
            self._forget(TOPICS, topic)

    @contextmanager
    def changed(self, kind: str, name: str, were: Settings, back: Back) -> Iterator[None]:
        """For the time of a block settings of one thing are others.

        Args:
            kind: of thing.
            name: its name.
            were: what they are now; what an earlier call has left noted counts more.
            back: puts them back.
        """
        noted = self.read()
        noted.setdefault(kind, {}).setdefault(name, dict(were))
        numbered_state_dir(self._pipeline)
        self._write(noted)
        try:
            yield
        finally:
            back(name, noted[kind][name])
            self._forget(kind, name)

    def begin(self, kind: str, name: str, settings: Settings) -> Settings | None:
        """Note that something is under way, until ``end``.

        Returns:
            what is noted already, and stays: who noted it was killed; else None.
        """
        noted = self.read()
        if (earlier := noted.get(kind, {}).get(name)) is not None:
            return earlier
        noted.setdefault(kind, {})[name] = dict(settings)
        numbered_state_dir(self._pipeline)
        self._write(noted)
        return None

    def end(self, kind: str, name: str) -> None:
        """Forget it."""
        self._forget(kind, name)

    def _write(self, noted: Mapping[str, Mapping[str, Settings]]) -> None:
        write_atomic(self._path, json.dumps(noted, indent=1, sort_keys=True))

    def _forget(self, kind: str, name: str) -> None:
        noted = self.read()
        noted.get(kind, {}).pop(name, None)
        noted = {one: names for one, names in noted.items() if names}
        if noted:
            self._write(noted)
        else:
            self._path.unlink(missing_ok=True)
