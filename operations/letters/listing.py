"""What there is to see of letters: their causes, single ones, one with its record; the shapes of ``--json``.

What rows hold is told only to who asks for values: documents, records, and the words of a reason, which quote both.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import orjson

from cdc.errors import DecodeError
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.letters.words import cause_of
from cdc.log.letter_log import LetterLog, Raw
from cdc.log.registry import encoding_of
from cdc.pipeline import Pipeline
from cdc.records.position import lsn_text
from operations.letters.found import FoundLetters, find_letters
from operations.letters.wanted import Wanted, table_of
from truth.values import exact

# Single letters that a list tells, unless more are asked for.
LIMIT = 100
# Of one cause, so many keys as examples.
EXAMPLES = 3
# Letters that are shown with their records.
MOST = 20


def letters_report(pipeline: Pipeline, wanted: Wanted, *, values: bool = False, each: int = 0) -> dict[str, Any]:
    """The letters that stand, by cause.

    Args:
        pipeline: the loaded file.
        wanted: which.
        values: whether reasons are told in full.
        each: so many letters are told one by one as well, the newest.

    Raises:
        ConfigError: a sink, view or generation that is not there (terminal).
        KafkaError, KafkaUnavailable: the letters can't be read.
    """
    found = find_letters(pipeline, wanted)
    return {
        **head(pipeline, found),
        "causes": causes(found),
        "letters": [told(pipeline, one, values=values) for one in list(found.standing.values())[:each]],
    }


def head(pipeline: Pipeline, found: FoundLetters) -> dict[str, Any]:
    """How many there are, and what was not looked at."""
    return {
        "pipeline": pipeline.name,
        "at": time.time(),
        "standing": len(found.standing),
        "healed": len(found.healed),
        "other_generations": found.elsewhere,
        "unasked": dict(found.unasked),
    }


def causes(found: FoundLetters) -> list[dict[str, Any]]:
    """Letters by sink, view and cause, the most first."""
    groups: dict[tuple[str, str, str], list[DeadLetter]] = defaultdict(list)
    for letter in found:
        groups[letter.sink, letter.view, cause_of(letter.reason)].append(letter)
    return [
        {
            "sink": sink,
            "view": view,
            "cause": cause,
            "letters": len(letters),
            "newest_at": max(letter.at_ms for letter in letters) / 1000,
            "oldest_at": min(letter.at_ms for letter in letters) / 1000,
            "keys": [letter.key for letter in letters[:EXAMPLES]],
        }
        for (sink, view, cause), letters in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def told(pipeline: Pipeline, logged: Logged, *, values: bool) -> dict[str, Any]:
    """One letter without what it is about."""
    letter = logged.letter
    return {
        "sink": letter.sink,
        "view": letter.view,
        "generation": letter.generation,
        "table": table_of(pipeline, letter),
        "row": letter.table is not None,
        "key": letter.key,
        "at": letter.at_ms / 1000,
        "cause": cause_of(letter.reason),
        "reason": letter.reason if values else None,
        "delete": letter.deleting,
        "version": letter.version,
        "lsn": lsn_text(letter.version),
        "transaction": letter.tx_id,
        "topic": letter.topic or None,
        "partition": letter.partition if letter.topic else None,
        "offset": letter.offset if letter.topic else None,
        "bytes": letter.document_bytes,
    }


def letter_report(pipeline: Pipeline, wanted: Wanted, *, values: bool = False) -> dict[str, Any]:
    """Letters with the record and the document of each; of more than ``MOST`` only the newest.

    Args:
        pipeline: the loaded file.
        wanted: which; usually one key.
        values: whether what rows hold is told.

    Raises:
        ConfigError, KafkaError, KafkaUnavailable: as ``letters_report``.
    """
    found = find_letters(pipeline, wanted)
    chosen = list(found.standing.values())[:MOST]
    places = {place for logged in chosen if (place := place_of(logged.letter)) is not None}
    records = found.log.raws(places)
    shown = [_shown(pipeline, found.log, logged, records, values=values) for logged in chosen]
    return {**head(pipeline, found), "letters": shown}


def place_of(letter: DeadLetter) -> tuple[str, int, int] | None:
    """Topic, partition and offset of the record that a letter is about; None where that is not known."""
    if not letter.topic or letter.partition is None or letter.offset is None or letter.offset < 0:
        return None
    return letter.topic, letter.partition, letter.offset


def _shown(
    pipeline: Pipeline,
    log: LetterLog,
    logged: Logged,
    records: Mapping[tuple[str, int, int], Raw],
    *,
    values: bool,
) -> dict[str, Any]:
    whole = log.whole(logged.at) or logged.letter
    place = place_of(whole)
    raw = None if place is None else records.get(place)
    return {
        **told(pipeline, Logged(whole, logged.at), values=values),
        "bytes": logged.letter.document_bytes,
        "document": _plain(whole.document) if values else None,
        "record": {
            "there": raw is not None,
            "key": None if raw is None or raw.key is None else raw.key.decode("utf-8", "replace"),
            "bytes": None if raw is None or raw.value is None else len(raw.value),
            "value": _record(pipeline, raw.value) if values and raw is not None else None,
        },
    }


def _record(pipeline: Pipeline, value: bytes | None) -> Any:
    """A record's value as its encoding reads it; as text where it can't be read, which may be why there is a letter."""
    if value is None:
        return None
    try:
        # JSON goes as it is: the codec's reader makes doubles of numbers, which is right where types are known.
        return exact(value) if value.startswith(b"{") else _jsonable(encoding_of(pipeline.source.reader()).loads(value))
    except (ValueError, KeyError, TypeError, IndexError, DecodeError):
        return value.decode("utf-8", "backslashreplace")


def _jsonable(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value, default=str))


def _plain(document: bytes | None) -> Any:
    if document is None:
        return None
    try:
        return exact(document)
    except ValueError:
        return document.decode("utf-8", "backslashreplace")
