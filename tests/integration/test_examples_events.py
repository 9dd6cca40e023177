"""The example of events in time: documents equal plain SQL over the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.events import load as events
from tests.support.joined import Joined
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled]

IN_REDIS = ("views_by_hour", "session", "guessing")
IN_SEARCH = ("delays", "search")
# Before these no event of an order is still to come, in any partition.
OVER = events.START + timedelta(minutes=events.MINUTES - 60)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """The example, running."""
    stack = servers()
    stack.up()
    made = Joined(stack, tmp_path_factory.mktemp("events"), loaders=[events])
    try:
        made.prepare()
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def truth(example: Joined) -> dict[str, dict[str, Any]]:
    """view -> name -> document."""
    return example.truth(Path(events.__file__).with_name("truth.sql").read_text(encoding="utf-8"))


def plain(value: Any) -> Any:
    """Moments as such, whoever has written them."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str) and value[4:5] == "-" and "T" in value:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(UTC).isoformat()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def told(documents: dict[str, Any]) -> list[str]:
    """All of a view's documents, without how many events came late."""
    return sorted(
        repr(sorted(plain({name: value for name, value in one.items() if name != "late"}).items()))
        for one in documents.values()
    )


@pytest.mark.parametrize("view", [*IN_REDIS, *IN_SEARCH])
def test_what_is_kept_is_what_sql_says(example: Joined, truth: dict[str, dict[str, Any]], view: str) -> None:
    read = example.in_redis if view in IN_REDIS else example.in_elasticsearch
    wanted = told(truth[view])
    assert example.settled(lambda: told(read(view)), wanted) == wanted
    late = sum(one["late"] for one in read(view).values())
    assert (late > 0) == (view == "delays")


def test_absence_is_found_once_the_time_is_over(example: Joined, truth: dict[str, dict[str, Any]]) -> None:
    wanted = truth["unpaid"]
    over = {key for key, one in wanted.items() if datetime.fromisoformat(one["at"]) < OVER}
    found = example.settled(lambda: over <= example.in_redis("unpaid").keys(), wanted=True)
    assert found and over
    for key, document in example.in_redis("unpaid").items():
        assert plain({name: value for name, value in document.items() if name != "late"}) == plain(wanted[key])
