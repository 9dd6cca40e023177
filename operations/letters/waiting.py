"""Was a write refused? Asked by whoever waits for it to be seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cdc.errors import DecodeError
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.log.letter_log import LetterLog, Raw
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.debezium_json import transaction_of
from operations.letters.listing import place_of

# Postgres counts transactions in 64 bits and tells 32 of them in its log.
XID = 0xFFFF_FFFF


class RejectedWrites:
    """The letters of a pipeline for many questions, one after the other; keep one open while somebody waits.

    Not for several threads at once.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._log = LetterLog(pipeline)
        self._transactions: dict[tuple[bytes, int], int | None] = {}

    def told(
        self, sink: str, generations: Collection[int], *, follow: bool = True
    ) -> list[tuple[DeadLetter, int | None]]:
        """The letters of some of a sink's generations, each with its transaction; None if that can't be known.

        Args:
            sink: the sink's name.
            generations: letters without a number count as theirs.
            follow: read what has come to the topic since the last time.

        Raises:
            KafkaError, KafkaUnavailable: the letters can't be read.
        """
        book = self._log.follow() if follow else self._log.book
        new = {
            key: logged
            for key, logged in book
            if logged.letter.sink == sink and logged.letter.generation in (None, *generations)
        }
        self._learn(new)
        return [(logged.letter, self._transactions.get((key, logged.at))) for key, logged in new.items()]

    def _learn(self, new: dict[bytes, Logged]) -> None:
        """The transactions of letters, from their records where the letters do not say: the log is asked once."""
        held = {(key, logged.at) for key, logged in self._log.book}
        self._transactions = {which: found for which, found in self._transactions.items() if which in held}
        unknown = {(key, one.at): one.letter for key, one in new.items() if (key, one.at) not in self._transactions}
        places = {which: place_of(letter) for which, letter in unknown.items() if letter.tx_id is None}
        records = self._log.raws({place for place in places.values() if place is not None})
        for which, letter in unknown.items():
            place = places.get(which)
            raw = None if place is None else records.get(place)
            self._transactions[which] = self._of(raw) if letter.tx_id is None else letter.tx_id

    def _of(self, raw: Raw | None) -> int | None:
        if raw is None or raw.value is None:
            return None
        try:
            event: Any = encoding_of(self.pipeline.source.reader()).loads(raw.value)
            return transaction_of(event["source"])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, DecodeError):
            return None
