"""What the page says of how all is: its colour, its line of words, and what makes it say that aloud again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.http.pages.model import MOST_NAMED, overview
from console.http.pages.render import ENVIRONMENT
from operations.jobs.job import Job
from operations.overview.history import History
from operations.overview.watching import Seen
from tests.support.page_cases import TABLES
from tests.support.watched import documented, nowhere, status, world

PAUSED = {"since": 1.0, "by": "ann@host", "why": "new disks", "resume_before": 9.0}
AWAY = {"judgement": "paused", "cause": "paused by ann@host (new disks)", "paused": PAUSED, "age_seconds": 18.9}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)


def verified(sink: str, **more: Any) -> dict[str, Any]:
    """What a verification has left of a sink; two of its rows differ."""
    [found] = documented("verify")["sinks"]
    found = {**found, "sink": sink, "at": 1795239427.57, "sample": None, "equal": False, "generation": 1, **more}
    return {"letters": {sink: None}, "verified": {sink: found}, "batches": {sink: []}}


def shown(told: dict[str, Any], **more: Any) -> dict[str, Any]:
    return overview(Seen(1, 2.0, 0.1, told, **more), {}, 3.0)


def test_a_sink_that_a_verification_found_different_is_not_well() -> None:
    """Beside it stood that all is well, in green."""
    view = shown(status(cache={}, search={}), kept=verified("cache"))
    assert view["level"] == "warn" and [one["sink"] for one in view["sinks"]] == ["cache", "search"]
    assert view["words"].startswith("cache: 2 rows differ, verified 2026-11-")
    one = shown(status(cache={"judgement": "retrying", "cause": "it is away"}), kept=verified("cache"))
    assert one["level"] == "bad" and one["words"].startswith("cache: retrying, it is away; 2 rows differ, ")
    asleep = shown(status(cache=AWAY), kept=verified("cache"))
    assert asleep["level"] == "warn" and "paused by ann@host (new disks); 2 rows differ" in asleep["words"]


@pytest.mark.parametrize("more", [{"generation": 2}, {"views": []}])
def test_what_was_found_of_another_generation_or_was_mended_alarms_nobody(more: Any) -> None:
    view = shown(status(cache={}), kept=verified("cache", **more))
    assert (view["level"], view["words"]) == ("good", "All is well.")


def test_the_page_of_a_sink_that_differs_says_so_at_its_top(tmp_path: Path) -> None:
    told = {"status": status(cache={}), "generations": {}, "tables": TABLES[1:], "kept": verified("cache")}
    with world(tmp_path, told=told) as made:
        made.look()
        for path in ("/", "/sinks/cache"):
            page = made.browser.get(path).text
            assert '<div class="state warn"' in page and 'class="node warn"' in page, path
            assert page.index("2 rows differ, verified") < page.index("<section"), path


def test_the_page_of_a_sink_counts_what_may_be_right(tmp_path: Path) -> None:
    """Of a cache whose documents expire it said `equal`, whatever of them was not there."""
    [view] = documented("verify")["sinks"][0]["views"]
    told = {"status": status(cache={}), "generations": {}, "tables": TABLES[1:]}
    for more, line, cell in (
        ({"doubtful": 1_234}, "equal, but for 1,234 keys that may be right", '<td class="number">1,234</td>'),
        ({}, "equal.", '<td class="number">0</td>'),
    ):
        old = {name: value for name, value in view.items() if name != "doubtful"}  # as an older Headwater has noted it
        kept = verified("cache", equal=True, views=[{**old, "differences": 0, "undecided": 7, "invisible": 8, **more}])
        with world(tmp_path, told={**told, "kept": kept}) as made:
            made.look()
            page = made.browser.get("/sinks/cache").text
        assert line in page and '<th scope="col" class="number">May be right</th>' in page
        assert f'<td class="number">7</td><td class="number">8</td>{cell}' in page


@pytest.mark.parametrize(
    ("differences", "error", "badge"),
    [(1, None, "1 differ"), (0, "it is away", "not all compared"), (0, None, None)],
)
def test_the_job_that_found_differences_is_not_green(differences: int, error: str | None, badge: str | None) -> None:
    sink = {"sink": "cache", "error": error, "views": [{"differences": differences}, {"differences": 0}]}
    result = {"equal": badge is None, "sinks": [sink]}
    job = Job("1", "verify", "cache", state="done", result=result)
    page = ENVIRONMENT.from_string('{% import "macros.html" as m %}{{ m.job(one) }}').render(one=job.to_dict())
    wanted = (
        '<span class="badge good">done</span>' if badge is None else f'<span class="badge warn">done, {badge}</span>'
    )
    assert wanted in page and page.count('class="badge') == 1


def test_a_sink_that_is_paused_is_named_with_the_age_of_what_its_readers_see() -> None:
    fresh = {"cache": {"as_of": None, "age": None, "reason": "it is paused"}}
    view = shown(status(cache=AWAY, search={}), freshness=fresh)
    assert (view["level"], view["words"]) == ("idle", "cache: paused by ann@host (new disks)")
    assert {one["sink"]: one["age"] for one in view["sinks"]}["cache"] == 18.9
    # What is lost has no age, whatever was applied before.
    lost = shown(status(cache={"age_seconds": 3.0}), freshness={"cache": fresh["cache"] | {"reason": "it was lost"}})
    assert lost["sinks"][0]["age"] is None


def test_an_hour_has_no_hole_where_a_sink_was_paused(tmp_path: Path) -> None:
    told = {"status": status(cache=AWAY), "generations": {}, "tables": TABLES[1:]}
    with world(tmp_path, told=told) as made:
        made.served.watching._fresh = lambda sink: {"as_of": None, "age": None, "reason": "it is paused"}  # type: ignore[method-assign]
        made.look()
        history: History = made.served.watching.history("cache")
        assert [one.age for one in history] == [18.9]


def test_of_many_sinks_the_worst_are_named_and_the_others_counted() -> None:
    bad = {f"sink{number:02}": {"judgement": "failed", "cause": "no room"} for number in range(MOST_NAMED + 24)}
    words = shown(status(**bad))["words"]
    assert words.count("no room") == MOST_NAMED and words.endswith("; and 24 more")
    assert shown(status(a=bad["sink00"], b=bad["sink00"]))["words"] == "a: failed, no room; b: failed, no room"


def test_what_goes_on_by_itself_is_not_said_aloud_again() -> None:
    def told(old: str, older: str, judgement: str = "behind") -> Any:
        sinks = {
            name: {"judgement": judgement, "cause": f"what readers see is {age} s old"}
            for name, age in (("cache", old), ("search", older))
        }
        fresh = {
            name: {"as_of": 1.0, "age": float(age), "reason": None} for name, age in (("cache", old), ("search", older))
        }
        return shown(status(**sinks), freshness=fresh)

    first, then, other = told("58", "57"), told("62", "63"), told("62", "63", "stalled")
    assert first["words"] != then["words"]  # the ages, and who stands first
    assert first["heard"] == then["heard"] != other["heard"]
    assert shown(status(cache={}))["heard"] != shown(status(cache={}), kept=verified("cache"))["heard"]


def test_a_log_that_does_not_answer_is_named_as_such() -> None:
    told = status(cache={})
    told["sinks"][0]["flows"][0] |= {"lag_events": None, "lag_error": "Kafka does not answer: timed out"}
    view = shown(told)
    assert (view["level"], view["words"]) == ("bad", "log: not readable, Kafka does not answer: timed out")
