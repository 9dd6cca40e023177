"""A generation beside another one that no reader has seen: two rebuilds that began at once could leave such."""

from __future__ import annotations

import time
from dataclasses import asdict

from spark.disk.register import Register, Registered


def begun_beside(register: Register, why: str = "x", *, own: bool = False) -> Registered:
    """As ``Register.create`` would make one, whatever there is."""
    with register._changed() as note:
        entry = Registered(int(note["last"]) + 1, "filling", time.time(), why, own=own)
        note["last"] = entry.number
        note["generations"].append(asdict(entry))
    return entry
