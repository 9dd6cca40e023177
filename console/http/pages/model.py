"""What the pages show, worked out of what was seen of a pipeline. Pure: nobody is asked, nothing is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cdc.ages import ago, at_least
from console.http.pages.levels import ORDER, Level, beside, level_of, worst
from console.http.pages.render import moment
from operations.overview.changes import KINDS
from operations.overview.history import History, age_of
from operations.overview.watching import Seen
from operations.status.source import budget

# A look that is older than this says so: a server that is away keeps the next one waiting.
STALE_SECONDS = 10.0
WIDTH, HEIGHT, POINTS = 160, 32, 80
# So many are named in the line that says how all is: it is read at a glance, and heard.
MOST_NAMED = 6


def overview(seen: Seen | None, histories: Mapping[str, History], now: float) -> dict[str, Any]:
    """The first view: the flow as a picture, the worst sink first, and all that is under way.

    Args:
        seen: the newest look; None before the first has ended.
        histories: sink -> its last hour.
        now: epoch seconds.
    """
    status = None if seen is None else seen.status
    source = None if status is None else _source(status["source"])
    sinks = [] if seen is None or status is None else [_sink(one, seen, histories) for one in status["sinks"]]
    sinks.sort(key=lambda one: (ORDER.index(one["level"]), -(one["age"] or 0.0), one["sink"]))
    known = seen.tables if seen else None
    tables = known or []
    incomplete = [_table(one) for one in tables if one["state"] != "done" or one["gap"]]
    log = None if status is None else _log(sinks, known)
    levels: list[Level] = [one["level"] for one in (source, log, *sinks) if one is not None]
    whole: Level = worst(levels) if seen and seen.at else "busy"
    errors = {} if seen is None else seen.errors
    parts = _parts(source, log, sinks)
    words = _words(seen, parts)
    return {
        "at": seen.at if seen and seen.at else None,
        "age": at_least(seen.at, now) if seen and seen.at else None,
        "stale": bool(seen and seen.at and ago(seen.at, now) > STALE_SECONDS),
        "errors": errors,
        "level": "bad" if errors else whole,
        "words": words,
        "heard": heard(parts, errors) if seen and seen.at else words,
        "source": source,
        "log": log,
        "sinks": sinks,
        "incomplete": incomplete,
        "changes": [_change(one, seen) for one in sorted(tables, key=lambda one: one["table"])] if seen else [],
        "evolving": [] if status is None else status["evolving"],
        "file": None if status is None else status["file"],
    }


def _parts(source: Any, log: Any, sinks: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """What there is to be said of, by name."""
    named = [("source", source), ("log", log), *((one["sink"], one) for one in sinks)]
    return [(name, one) for name, one in named if one is not None]


def _words(seen: Seen | None, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The state in one line, for the top of the page and for who hears it."""
    if seen is None or not seen.at:
        return "The first look at the servers is under way."
    if seen.errors.get("status"):
        return "The pipeline's status can't be had."
    said = {level: [f"{name}: {words_of(one)}" for name, one in parts if one["level"] == level] for level in ORDER}
    busy = [f"{name}: {one['judgement']}" for name, one in parts if one["level"] == "busy"]
    told = said["bad"] + said["warn"] or busy + said["idle"]
    more = [f"and {len(told) - MOST_NAMED:,} more"] if len(told) > MOST_NAMED else []
    return "; ".join(told[:MOST_NAMED] + more) or "All is well."


def heard(parts: Sequence[tuple[str, Mapping[str, Any]]], errors: Mapping[str, str] = MappingProxyType({})) -> str:
    """What must change for the state to be said aloud again: how each is, and no figure that goes on by itself."""
    states = sorted(f"{name} {one['judgement']} {one['level']}" for name, one in parts)
    return ";".join([*states, *sorted(errors)])


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    """The way into the log, and what its slot keeps: of how much, and for how long that will do."""
    wal = budget(dict(source))
    # Changes of a table that is missing in the publication are lost meanwhile; `status` tells of it beside how it is.
    warning = next(iter(source["tables"].values()), None) or (
        f"the WAL that the slot keeps: {100 * wal.share:.0f} % of what it may"
        if wal.share is not None and wal.level not in (None, "none")
        else None
    )
    return {
        **source,
        "level": level_of(source["judgement"], warning),
        "warning": warning,
        "full_bytes": wal.full_bytes,
        "share": None if wal.share is None else min(wal.share, 1.0),
        "held": wal.held,
    }


def words_of(one: Mapping[str, Any]) -> str:
    """How it is and why; of what is well, what will be trouble, and what a verification found."""
    cause, judgement = _first(one["cause"]), one["judgement"]
    why = cause if cause.startswith(judgement) else f"{judgement}, {cause}" if cause else _first(one["warning"])
    return "; ".join(told for told in (why, one.get("differs")) if told) or judgement


def _first(text: str | None) -> str:
    return (text or "").split("\n")[0]


def _sink(sink: Mapping[str, Any], seen: Seen, histories: Mapping[str, History]) -> dict[str, Any]:
    name = sink["sink"]
    fresh = seen.freshness.get(name) or {"as_of": None, "age": None, "reason": None}
    builds = {one["generation"]: one for one in (seen.generations or {}).get(name, [])}
    flows = sink["flows"]
    kept = seen.kept or {"letters": {}, "verified": {}, "batches": {}}
    differs = _differs(kept["verified"].get(name), sink["generation"])
    level = level_of(sink["judgement"], sink["warning"])
    return {
        **sink,
        "letters": kept["letters"].get(name),
        "verified": kept["verified"].get(name),
        "batches": kept["batches"].get(name) or [],
        "differs": differs,
        "level": worst([level, "warn"]) if differs else level,
        "age": age_of(sink, fresh["age"]),
        "keeps": fresh["reason"],
        "rates": seen.rates.get(name) or {"log": None, "read": None, "written": None},
        "builds": [_build(one, builds.get(one["generation"], {}), sink) for one in sink["generations"]],
        "written": sum(flow["written"] for flow in flows),
        "deleted": sum(flow["deleted"] for flow in flows),
        "rejected": sum(flow["rejected"] for flow in flows),
        "deferred": sum(flow["deferred"] for flow in flows),
        "line": sparkline(histories.get(name)),
        "flow_list": [{**flow, "level": level_of(flow["judgement"], flow["warning"])} for flow in flows],
    }


def _differs(found: Mapping[str, Any] | None, generation: int) -> str | None:
    """What the last verification found wrong with what readers see; one of another generation says nothing of it."""
    rows = sum(view["differences"] for view in found["views"]) if found and found["generation"] == generation else 0
    return (
        f"{rows:,} row{'s' * (rows != 1)} differ{'s' * (rows == 1)}, verified {moment(found['at'])}"
        if rows and found
        else None
    )


def _build(one: Mapping[str, Any], more: Mapping[str, Any], sink: Mapping[str, Any]) -> dict[str, Any]:
    """One generation, with how much it has of the log of its own topics."""
    way = one["progress"]
    share = None if way is None else min(1.0, way["done"] / way["total"]) if way["total"] else 1.0
    living = one["stage"] == "living"
    judgement = sink["judgement"] if living else beside(one["state"], one["last_error"]).judgement
    return {
        **one,
        "level": level_of(judgement),
        "judgement": judgement,
        "why": more.get("why"),
        "created_at": more.get("created_at"),
        "promoted_at": more.get("promoted_at"),
        "differs": more.get("differs_from_file") or [],
        "share": share,
        "may_promote": one["stage"] in ("ready", "previous"),
    }


def _log(sinks: Sequence[Mapping[str, Any]], tables: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """How far the topics go; of tables that are not known nothing is said.

    Of a flow that has finished its table was taken out of the file, and its topic may be gone.
    """
    rates = [one["rates"]["log"] for one in sinks if one["rates"]["log"] is not None]
    records = [one["records"] for one in tables or ()]
    flows = [flow for sink in sinks for flow in sink["flows"] if flow["state"] != "finished"]
    asked = tables or [flow for flow in flows if flow["offsets"]]
    behind = {flow["lag_error"] for flow in flows if flow["lag_error"]}
    wrong = sorted(behind) + sorted({one["records_error"] for one in tables or () if one["records_error"]} - behind)
    more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
    return {
        "level": "bad" if wrong else "good" if asked else "idle",
        "judgement": "not readable" if wrong else "well" if asked else "not asked",
        "cause": wrong[0] + more if wrong else None,
        # A captured table may be read by no sink.
        "unknown": "how far the sinks are behind" if behind else "how many records are in it",
        "warning": None,
        "rate": max(rates, default=None),
        "records": None if not records or None in records else sum(records),
        "topics": None if tables is None else sum(one["topics"] for one in tables),
        "tables": None if tables is None else len(tables),
        "reading": None if tables is None else sum(one["state"] != "done" for one in tables),
    }


def _change(one: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    """What is done to a table: rows by Postgres's count, and a second."""
    rates = seen.changes.get(one["table"]) or dict.fromkeys(KINDS)
    return {**one, "kinds": {kind: {"count": one[kind], "rate": rates[kind]} for kind in KINDS}}


def _table(one: Mapping[str, Any]) -> dict[str, Any]:
    share = None
    # More than an estimate says that it was too low, and not how far the table is.
    if one["rows"] and one["records"] is not None and one["records"] <= one["rows"] and not one["again"]:
        share = one["records"] / one["rows"]
    return {**one, "share": share}


def sparkline(history: History | None) -> dict[str, Any] | None:
    """The age of what readers saw over the last hour, as points of an SVG; None where nothing is known of it.

    Of a sink whose age is not known the records that it is behind stand for it.
    """
    samples = list(history or ())
    what = "age" if any(one.age is not None for one in samples) else "behind"
    known = [(one.at, getattr(one, what)) for one in samples if getattr(one, what) is not None]
    if len(known) < 2:
        return None
    start, end = known[0][0], known[-1][0]
    most = max(value for _, value in known)
    buckets: dict[int, float] = {}
    for at, value in known:  # of each piece the worst: a peak must not be lost
        place = int((at - start) / max(end - start, 1e-9) * (POINTS - 1))
        buckets[place] = max(buckets.get(place, 0.0), value)
    points = " ".join(
        f"{place / (POINTS - 1) * WIDTH:.1f},{HEIGHT - 2 - value / max(most, 1e-9) * (HEIGHT - 4):.1f}"
        for place, value in sorted(buckets.items())
    )
    return {
        "points": points,
        "width": WIDTH,
        "height": HEIGHT,
        "what": what,
        "most": most,
        "now": known[-1][1],
        "seconds": end - start,
    }
