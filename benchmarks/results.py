"""The list of measurements that ``make bench`` leaves behind, in the form that readers outside rely on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

LATEST = Path(__file__).parent / "results" / "latest.json"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Measurement:
    """One figure.

    Attributes:
        name: stable name, e.g. ``idle_applied_p50_s/redis``.
        value: the figure.
        unit: ``s``, ``rows/s``, ``MiB``, ``ratio``.
        peer: what it is held against, or None.
        peer_value: the peer's figure in the same run and unit.
        ratio: value / peer_value, where that says something.
        n: how many observations are behind it.
        command: what was run.
        at: when (UTC).
    """

    name: str
    value: float
    unit: str
    n: int
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    command: str = "make bench"
    at: str = field(default_factory=_now)

    def line(self) -> str:
        """One line for people."""
        against = f"  ({self.peer}: {self.peer_value:,.3f}, ratio {self.ratio:.2f})" if self.peer and self.ratio else ""
        return f"{self.name:<40} {self.value:>14,.3f} {self.unit}{against}"


def write(measurements: Sequence[Measurement], path: Path = LATEST) -> None:
    """Put measurements into the file; names measured before and not now keep their old entry and date."""
    known: dict[str, dict[str, object]] = {}
    if path.exists():
        known = {entry["name"]: entry for entry in json.loads(path.read_text())}
    known.update({entry.name: asdict(entry) for entry in measurements})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([known[name] for name in sorted(known)], indent=1) + "\n")


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
