"""Dead letters that hold a row: about itself, and about documents that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from confluent_kafka import Message

from cdc.errors import DecodeError
from cdc.join.view import JoinedView
from cdc.letters.deadletter import DeadLetter
from cdc.log.client import Kafka
from cdc.log.letter_log import LetterLog
from cdc.log.letters import letters_config, publish
from cdc.view import View
from operations.erase.log import InLog, look
from operations.erase.readers import Build
from operations.erase.shown import places_of, shows
from operations.erase.subject import Subject
from operations.letters.judge import document_of


@dataclass(frozen=True)
class Letters:
    """Judges letters.

    Args:
        subject: the row.
        builds: the generations that show its table.
    """

    subject: Subject
    builds: Sequence[Build]

    def own(self, letter: DeadLetter) -> bool:
        """Whether a letter is about the row itself, or the document that was its own: nothing is left to be mended."""
        subject = self.subject
        if letter.table is not None:
            mine = letter.key == subject.key or document_of(subject.view, letter) == subject.key
            return letter.table == subject.name and mine
        roots = [view for view in self._views(letter) if view.table.qualified == subject.name]
        return any(view.name == letter.view and letter.key == view.document_of(subject.key) for view in roots)

    def holds(self, letter: DeadLetter) -> bool:
        """Whether it holds values of the row, or may."""
        if self.own(letter):
            return True  # its reason may quote them
        views = [view for view in self._views(letter) if view.name == letter.view]
        return letter.document is not None and any(self._shows(view, letter) for view in views)

    def _views(self, letter: DeadLetter) -> list[View]:
        """Views of the sink that take rows of the table, of whichever generation."""
        return [view for build in self.builds if build.opened.sink == letter.sink for view in build.views]

    def _shows(self, view: View, letter: DeadLetter) -> bool:
        if letter.table is not None or not isinstance(view, JoinedView):
            return False
        try:
            document = orjson.loads(letter.document or b"")
        except orjson.JSONDecodeError:
            return True  # cut, or of a form that can't be looked into
        return shows(document, places_of(view, self.subject.name), self.subject.key)

    def look(self, kafka: Kafka) -> InLog:
        """Every letter that holds the row, those that are superseded too.

        Raises:
            KafkaUnavailable: no answer (transient).
        """

        def judge(message: Message) -> tuple[bool, bool]:
            letter = _read(message.value())
            mine = letter is not None and self.holds(letter)
            return mine, mine

        return look(kafka, self.subject.pipeline.dead_letter_topic, judge, self.subject.say)

    def supersede(self) -> int:
        """Clear letters about the row itself; of others that show it nothing but the verdict stays. How many were.

        What was refused without its document can still be written again: ``letters replay`` makes it anew.

        Raises:
            KafkaError, KafkaUnavailable: not all were acknowledged; the same again goes on.
        """
        log = LetterLog(self.subject.pipeline)
        standing = {logged.at: key for key, logged in log.follow()}
        gone, bare = dict[bytes, int](), dict[bytes, bytes]()

        def judge(message: Message) -> tuple[bool, bool]:
            at = message.offset() or 0
            letter = _read(message.value()) if at in standing else None
            if letter is None or not self.holds(letter):
                return False, False
            if self.own(letter):
                gone[standing[at]] = at
            else:
                bare[standing[at]] = letter.without_values().to_json()
            return True, True

        # In one pass that keeps no document: a look at each by itself is a consumer of its own for every letter.
        look(Kafka(self.subject.pipeline), log.topic, judge, self.subject.say)
        publish(letters_config(self.subject.pipeline), [(key, value, None) for key, value in bare.items()])
        log.clear(gone)
        # A letter that stands behind a tombstone would be lost by the compaction that comes now.
        log.follow()
        log.write_covered_again()
        return len(gone) + len(bare)


def _read(value: bytes | None) -> DeadLetter | None:
    try:
        return None if value is None else DeadLetter.from_json(value)
    except DecodeError:
        return None
