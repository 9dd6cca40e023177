"""Documents that are no queries: what is noted of them beside the lease on following their view. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping

import orjson

# Before the document's key, in the fields of who follows the view (sinks/redis/stream/hooks.py).
_REFUSED = "refused:"


def refusal(key: str, why: str | None) -> dict[str, str | None]:
    """What is to be noted of a document: why it is no query, or nothing any more."""
    noted = None if why is None else orjson.dumps({"why": why, "at": round(time.time(), 3)}).decode()
    return {_REFUSED + key: noted}


def refusals(kept: Mapping[str, str]) -> dict[str, str]:
    """Keys of all that is no query, and why: of what is noted."""
    found = ((name.removeprefix(_REFUSED), said) for name, said in kept.items() if name.startswith(_REFUSED))
    return {key: str(orjson.loads(said)["why"]) for key, said in found}
