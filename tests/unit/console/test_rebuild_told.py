"""What `headwater rebuild` says at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.cli.rebuild import _print


def _report(records: int, seconds: float) -> dict[str, Any]:
    return {
        "sink": "warehouse",
        "generation": 2,
        "stage": "living",
        "records": records,
        "seconds": seconds,
        "equal": True,
        "late": False,
    }


@pytest.mark.parametrize(
    ("records", "seconds", "told"),
    [(0, 0.0, "is living\n"), (1200, 4.0, "is living · 1,200 records in 4 s\n")],
)
def test_only_what_was_counted_is_told(
    records: int, seconds: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print(_report(records, seconds), Path("pipeline.yaml"))
    assert capsys.readouterr().out == f"sink warehouse: generation 2 {told}"
