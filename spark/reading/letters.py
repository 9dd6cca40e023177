"""The dead letter of a record that can't be applied."""

from __future__ import annotations

import time

from cdc.errors import DecodeError
from cdc.letters.deadletter import DeadLetter
from cdc.records.debezium_json import Decoder
from spark.reading.spec import FlowSpec


def record_letter(
    spec: FlowSpec,
    view: str,
    key: str,
    decoder: Decoder,
    error: DecodeError,
    raw: bytes | None,
    at: tuple[str, int, int],
    *,
    of_row: bool = True,
) -> DeadLetter:
    """Of a row of the record's table, or of a document.

    Args:
        spec: the flow's work.
        view: its name; empty where no view is concerned.
        key: the row's or the document's; the record's own as text where it names neither.
        decoder: the topic's.
        error: why.
        raw: the record's value, if it is at hand.
        at: topic, partition and offset.
        of_row: ``key`` is a row's.
    """
    position, transaction = decoder.told(raw)
    return DeadLetter(
        spec.sink,
        view,
        key,
        position,
        f"{error.what}; {error.fix}" if error.fix else error.what,
        raw,
        *at,
        at_ms=int(time.time() * 1000),
        generation=spec.generation,
        table=decoder.table.qualified if of_row else None,
        tx_id=transaction,
    )
