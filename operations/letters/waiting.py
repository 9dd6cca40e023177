"""Was a write refused? Asked by whoever waits for it to be seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cdc.deadletter import DeadLetter
from cdc.debezium_json import transaction_of
from cdc.errors import DecodeError
from cdc.letter_book import Logged
from cdc.log.letter_log import LetterLog, Raw
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from operations.letters.listing import place_of
from operations.state_folder import register_of

# Postgres counts transactions in 64 bits and tells 32 of them in its log.
XID = 0xFFFF_FFFF


@dataclass(frozen=True)
class Rejection:
    """What was found.

    Attributes:
        letters: of the transactions or keys that were asked for, without their documents.
        untold: letters that are as new and do not say of which transaction: of joined documents, whose version has no
            one change, and of records that the log has let go. Of these only the key tells.
    """

    letters: list[DeadLetter]
    untold: list[DeadLetter]


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

    def look(
        self, sink: str, *, transactions: Collection[int] = (), keys: Collection[str] = (), after: int = 0
    ) -> Rejection:
        """The letters of a sink's living generation that are of some writes.

        Args:
            sink: the sink's name.
            transactions: the source's, as ``pg_current_xact_id`` or ``txid_current`` gives them.
            keys: of documents or rows.
            after: a position (``cdc.position``): what is not newer is left out. Letters without a position are not.

        Raises:
            KafkaError, KafkaUnavailable: the letters can't be read.
        """
        living = register_of(self.pipeline, sink).living()
        asked = {number & XID for number in transactions}
        letters, untold = [], []
        for letter, transaction in self.told(sink, [living]):
            if 0 < letter.version <= after:
                continue
            if letter.key in keys or (transaction is not None and transaction & XID in asked):
                letters.append(letter)
            elif transaction is None:
                untold.append(letter)
        return Rejection(letters, untold)

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
