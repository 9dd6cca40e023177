"""Does a transaction that nobody ends keep the slot, and with it the WAL, where it is?"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import SourceError
from connectors.preflight.model import Check, Finding, Level, Site
from connectors.wal.budget import NONE, judge
from connectors.wal.look import look
from connectors.wal.pins import MOST, better_seen, long_ones, read_pins


def run(site: Site) -> Iterator[Finding]:
    """No transaction that has written is open for a minute and more, and no standby that is waited for is away."""
    seen = look(site.db, site.pipeline.source.slot)
    kept = judge(retained=seen.retained_bytes, budget=site.pipeline.policy.wal_bytes, limit=seen.limit_bytes)
    pins = list(seen.pins)
    if not isinstance(site.setup, SourceError):  # the owner sees its own sessions, and those of its members
        pins = better_seen(pins, read_pins(site.setup, standbys=False))
    found = long_ones(pins, tight=kept.level not in (None, NONE))
    for pin in found[:MOST]:
        level = Level.ERROR if pin.kind == "standby" else Level.WARNING
        about = pin.name or f"pid {pin.pid}"
        message = f"the slot can't move past it, and Postgres keeps the WAL since: {pin.words}"
        yield Finding(level, about, message, pin.fix)
    if len(found) > MOST:
        message = f"the slot can't move past {len(found) - MOST:,} more, which began later"
        fix = "end the first ones; `headwater status FILE --json` names those that source.user may see"
        yield Finding(Level.WARNING, "others", message, fix)


CHECK = Check("transactions", "nothing holds the slot back", run, needs=("server",))
