"""Was a write refused? Asked by whoever waits for it to be seen."""

from __future__ import annotations

import time
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
# Letters that are older are of no write that somebody waits for: ten minutes of a token's life (session.py of
# headwater-client), and twenty of a batch between its letters and its end. All letters of thirty days would be read, a
# record of the log fetched for each, and kept: whoever waits, for any sink, would wait for that.
REMEMBERED_SECONDS = 1_800.0
# Records that are fetched before what they tell is remembered: a broker that is silent then costs no more than these.
PAGE = 500


class RejectedWrites:
    """The newest letters of a pipeline for many questions, one after the other; keep one open while somebody waits.

    Not for several threads at once.

    Args:
        pipeline: the loaded file.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._log = LetterLog(pipeline, since_ms=_oldest())
        self._transactions: dict[tuple[bytes, int], int | None] = {}

    def told(
        self, sink: str, generations: Collection[int], *, follow: bool = True
    ) -> list[tuple[DeadLetter, int | None]]:
        """The newest letters of some of a sink's generations, each with its transaction; None if that can't be known.

        Args:
            sink: the sink's name.
            generations: letters without a number count as theirs.
            follow: read what has come to the topic since the last time.

        Raises:
            KafkaError, KafkaUnavailable: the letters can't be read.
        """
        book = self._log.follow() if follow else self._log.book
        book.forget_before(_oldest())
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
        self._transactions |= {which: one.tx_id for which, one in unknown.items() if one.tx_id is not None}
        fetched = [which for which, one in unknown.items() if one.tx_id is None]
        for start in range(0, len(fetched), PAGE):
            places = {which: place_of(unknown[which]) for which in fetched[start : start + PAGE]}
            records = self._log.raws({place for place in places.values() if place is not None})
            for which, place in places.items():
                self._transactions[which] = None if place is None else self._of(records.get(place))

    def _of(self, raw: Raw | None) -> int | None:
        if raw is None or raw.value is None:
            return None
        try:
            event: Any = encoding_of(self.pipeline.source.reader()).loads(raw.value)
            return transaction_of(event["source"])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, DecodeError):
            return None


def _oldest() -> int:
    """When the oldest letter was made that matters, epoch milliseconds."""
    return int((time.time() - REMEMBERED_SECONDS) * 1000)
