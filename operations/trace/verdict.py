"""Where a row is stuck, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """The first place at which a row is not as it must be.

    Args:
        report: of ``trace_report``: ``source``, ``log``, ``sinks``, ``near``, ``not_a_key``.

    Returns:
        ``stuck``: ``source``, ``log``, the name of a sink, or None; and ``words``.
    """
    source, log = report["source"], report["log"]
    early = _before_the_log(source, log)
    if early is not None:
        return early
    for sink in report["sinks"]:
        words = _in_sink(sink, log) or _of_no_row(sink, source, log)
        if words is not None:
            return {"stuck": sink["sink"], "words": words}
    if source["error"]:
        found = "what the log has is in every sink" if log["there"] else _unread(log) or "the log has no record of it"
        return {"stuck": None, "words": f"Postgres does not tell ({source['error']}); {found}"}
    if not source["there"] and not log["there"]:
        return {"stuck": None, "words": _nowhere(report)}
    what = "what Postgres has" if source["there"] or log["deleted"] else "its row has gone, and the event stays: it"
    return {"stuck": None, "words": f"{what} is in the log and in every sink that keeps it{_parts(report)}"}


def _nowhere(report: Mapping[str, Any]) -> str:
    """Of a key that neither Postgres nor the log knows, as far as that was read."""
    unread = _unread(report["log"])
    words = f"there is no such row; {unread}" if unread else "there is no such row, and the log has no record of one"
    words = report["not_a_key"] or words
    # Only where the log was not read to its beginning, else it would be stuck there.
    if holders := sorted({sink["sink"] for sink in report["sinks"] if sink["there"] and not sink["stays"]}):
        words += f"; documents of it are in {', '.join(holders)}: `headwater verify FILE` tells whether they may be"
    return words + (f"; did you mean {' or '.join(report['near'])}?" if report["near"] else "")


def _unread(log: Mapping[str, Any]) -> str | None:
    """Words for a log without a record of the row that was not read to its beginning."""
    if log["there"] or log["whole"]:
        return None
    return "no record was found in the part of the log that was read in time; there may be an older one"


def _parts(report: Mapping[str, Any]) -> str:
    """Joined documents that show the row are not looked at: they may be older, and nothing here would know."""
    views = sorted({view for sink in report["sinks"] for view in sink.get("part_of", ())})
    command = "`headwater explain FILE SINK KEY`"
    return f"; documents of {', '.join(views)} show it too, and are not looked at: {command}" if views else ""


def _before_the_log(source: Mapping[str, Any], log: Mapping[str, Any]) -> dict[str, Any] | None:
    if log["error"]:
        return {"stuck": "log", "words": f"the log can't be read: {log['error']}"}
    if source["error"]:
        return None
    if source["there"] and (words := _unread(log)) is not None:
        return {"stuck": None, "words": words}
    missing = _missing_in_log(source, log)
    if missing is None:
        return None
    slot = "" if source["slot_active"] else "; nobody reads from the slot: look at the connector"
    return {"stuck": "source", "words": missing + slot}


def _missing_in_log(source: Mapping[str, Any], log: Mapping[str, Any]) -> str | None:
    if source["there"] and not log["there"]:
        return "the row is in Postgres, and its topic has no record of it"
    if log["event"]:  # written once: what is done with its row later is none
        return None
    if source["there"] and log["deleted"]:
        return "the row is in Postgres, and its newest record is a delete"
    if not source["there"] and log["there"] and not log["deleted"]:
        return "the row is gone in Postgres, and its topic has no delete of it"
    return "its newest record is older than what Postgres has now" if log["same_as_source"] is False else None


def _in_sink(sink: Mapping[str, Any], log: Mapping[str, Any]) -> str | None:
    """Why a sink does not have what the log has; None if it has, or keeps no such documents."""
    name = sink["sink"]
    if sink["error"]:
        return f"sink {name} can't be asked: {sink['error']}"
    if sink["view"] is None or not log["there"]:
        return None
    if sink["applied"] is False:
        at = sink["applied_offset"]
        # What is kept is the next offset: the record at it has not been applied.
        how_far = f"it up to offset {at - 1:,}" if at else "nothing of it yet"
        why = f": {sink['last_error'].splitlines()[0]}" if sink["last_error"] else ""
        where = f"partition {log['partition']}, offset {log['offset']:,}"
        return f"the record is in the log ({where}), and sink {name} has applied {how_far}; it is {sink['state']}{why}"
    held, verify = f"sink {name} has applied the record, and", _verify(name)
    # A joined document bears the version of its fill, or of its newest row.
    compared = not sink["joined"] and None not in (sink["position"], log["position"])
    older = compared and sink["position"] < log["position"]
    if log["deleted"]:
        return f"{held} still has a document, though it is a delete: {verify}" if sink["there"] else None
    if not sink["there"] and not sink["where"]:  # a condition may leave the row out
        expired = f", or it has expired (ttl_seconds: {sink['ttl_seconds']:,})" if sink["ttl_seconds"] else ""
        return f"{held} has no document{expired}: look at the dead letters, then {verify}"
    return f"{held} has an older version: {verify}" if older else None


def _of_no_row(sink: Mapping[str, Any], source: Mapping[str, Any], log: Mapping[str, Any]) -> str | None:
    """A document of a row that is nowhere: its delete is older than the log, or somebody else has written it."""
    gone = source["there"] is False and not log["there"] and log["whole"]
    if not gone or not sink["there"] or sink["stays"]:
        return None
    return (
        f"there is no such row, the log has no record of one, and sink {sink['sink']} has a document: "
        f"{_verify(sink['sink'])} names it, and with `--repair` it goes"
    )


def _verify(sink: str) -> str:
    return f"`headwater verify FILE --sink {sink}`"
