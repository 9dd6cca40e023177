"""``headwater status`` as a table: in a terminal of 80 characters no word and no figure is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.cli import generations, status
from console.cli.shared import tables
from console.cli.shared.tables import show
from console.commands import with_file


def generation(number: int, stage: str, error: str | None = None) -> dict[str, object]:
    lags = {"age_seconds": 1.0, "lag_events": 5, "lag_seconds": 0.1}
    return {"generation": number, "stage": stage, "state": "running", "last_error": error, **lags}


SINK = {
    "sink": "search",
    "type": "elasticsearch",
    "judgement": "rebuilding",
    "age_seconds": 1234.0,
    "state": "running",
    "lag_events": 1_234_567,
    "lag_seconds": 1000.0,
    "flows": [{"written": 7_654_321, "deleted": 1_200, "rejected": 3, "deferred": 0}],
    "generations": [generation(1, "living"), generation(2, "building", "the disk is full")],
    "paused": None,
    "rebuilding": None,
    "last_error": "elasticsearch: connection refused\nand more",
    "cause": None,
    "warning": None,
}
REPORT = {"pipeline": "shop", "sinks": [SINK]}
FIGURES = ("1,234.0 s", "1,234,567", "1000.0 s")
NARROW = ("search", "rebuilding", "running", "rejected", "1: living", "2: building", *FIGURES)


@pytest.mark.parametrize(("columns", "shown"), [("80", NARROW), ("120", (*NARROW, "7,654,321", "1,200"))])
def test_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str, shown: tuple[str, ...]
) -> None:
    for module in (status, tables):
        monkeypatch.setattr(module, "width", lambda: int(columns))
    show(status._table(REPORT))
    out = capsys.readouterr().out
    assert all(text in out for text in shown)
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= int(columns)


def test_a_pipe_has_room_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    show(status._table(REPORT))
    assert "7,654,321" in capsys.readouterr().out


def test_errors_stand_below_the_table() -> None:
    matcher = {"view": "order", "working": False, "error": "it is away", "at": 0.0}
    more = {"push": [], "standing": [matcher], "evolving": [], "file": {"refused": None, "building": []}}
    told = status._below(REPORT | more)
    assert next(told) == "search: elasticsearch: connection refused"
    assert next(told) == "search, generation 2: the disk is full"
    assert next(told) == "standing queries of order are not judged: it is away"


@pytest.mark.parametrize(
    ("error", "progress", "told"),
    [
        (None, "43% of the log\nand more", "attempt 2: 43% of the log"),
        (None, "", "attempt 2: it begins"),
        ("no room\nand more", "", "attempt 2: no room"),
        ("no room", "43% of the log", "attempt 2: no room; now 43% of the log"),
    ],
)
def test_why_a_lost_sink_is_not_made_again_is_told_before_how_far_it_is(
    error: str | None, progress: str, told: str
) -> None:
    lost = {"seconds": 90.4, "attempt": 2, "progress": progress, "error": error}
    assert status.rebuilding_words(lost) == f"lost 90 s ago, {told}"


@pytest.mark.parametrize(
    ("moving", "seen", "ends", "by_hand"),
    [
        (True, "may see either of 1 and 2", "ends it", "--generation N` of either"),
        (False, "readers still see 1", "takes it back", "--generation 2`"),
    ],
)
def test_a_promotion_that_has_not_ended_stands_below_the_generations(
    capsys: pytest.CaptureFixture[str], moving: bool, seen: str, ends: str, by_hand: str
) -> None:
    promotion = {"from": 1, "to": 2, "moving": moving}
    sinks = [
        {"sink": "search", "promotion": promotion, "generations": []},
        {**SINK, "promotion": None, "generations": []},
    ]
    generations._print({"pipeline": "shop", "sinks": sinks}, Path("shop.yaml"))
    out = capsys.readouterr().out
    assert out.count("has begun and not ended") == 1 and seen in out
    assert (
        "headwater promote shop.yaml search" in out
        and f"`headwater run shop.yaml` {ends}" in out
        and out.rstrip().endswith(by_hand)
    )


def test_a_history_that_stands_still_says_what_to_do() -> None:
    """Its way out is not the sink's: a rebuild, which the sink's line advised, leaves it where it was."""
    error = "the log begins at 9, it is at 5\n  what it means: records are gone\n  what to do: another namespace"
    told = {"state": "failed", "lag_events": 4, "lag_seconds": 1.0, "kept_seconds": 3600, "warning": None}
    (line,) = status._history("warehouse", told | {"last_error": error})
    assert line.endswith("the log keeps 1 h: the log begins at 9, it is at 5; what to do: another namespace")
    (line,) = status._history("warehouse", told | {"last_error": None})
    assert line.endswith("the log keeps 1 h")


def test_a_way_out_names_the_file_that_was_asked_about() -> None:
    told = "it is stopped; what to do: `headwater run FILE` (FILE is yours), or `headwater apply FILE --wait`"
    assert with_file(told, "my file.yaml") == (
        "it is stopped; what to do: `headwater run 'my file.yaml'` (FILE is yours), or"
        " `headwater apply 'my file.yaml' --wait`"
    )
