"""Wrong documents in each kind of sink, in plain views and joined ones: found exactly, repaired, no other touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.planting import Planted, Planter, Target
from tests.support.scenario import Scenario
from tests.support.servers import servers

# The runner, a JVM with seven flows, and another JVM for each `verify`.
pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(900)]

NOBODY = "ffffffff-ffff-4fff-bfff-ffffffffffff"
TARGETS = [
    Target("search", "order", "999999", "note"),
    Target("search", "product", "999999", "name"),  # fields and a condition by Spark SQL
    Target("search", "customer_card", NOBODY, "name"),  # joined, with both
    Target("cache", "order", "999999", "note"),
    Target("cache", "order_card", "999999", "note"),  # joined
    Target("warehouse", "orders", "999999", "note"),
]
CHANGES = (
    "UPDATE orders SET note = 'later ' || coalesce(note, '')",
    "UPDATE products SET name = 'later ' || name",
    "UPDATE customers SET name = 'later ' || name",
)


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patched:
        yield patched


class Patient(Scenario):
    """Eight flows beside another JVM for each ``verify``: on two cores they take a while to start."""

    def wait(self, good: Any, seconds: float = 500.0) -> dict[str, Any]:
        return super().wait(good, seconds)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """A shop at work, all sinks equal."""
    stack = servers()
    stack.up()
    made = Patient(stack, tmp_path_factory.mktemp("repair"))
    # Only what is looked at: each flow is a query of its own.
    kept = {sink: [made.view(one.view) for one in TARGETS if one.sink == sink] for sink in ("search", "cache")}
    made.extra = {f"sinks.{sink}.views": names for sink, names in kept.items()}
    # A mapping that names fields of one view only: a repair of another view must not trip over it.
    mapping = {"details": {"type": "object", "enabled": False}}
    made.extra |= {"sinks.search.mapping": mapping, "sinks.warehouse.tables": ["public.orders"]}
    try:
        made.prepare()
        made.execute("UPDATE orders SET note = 'n'")
        made.start()
        made.assert_equal()
        made.readable(allowed=True)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def planter(scenario: Scenario, environment: pytest.MonkeyPatch) -> Planter:
    return Planter(scenario, environment)


@pytest.fixture(scope="module")
def before(planter: Planter) -> dict[Target, dict[str, Any]]:
    """What the sinks held when all was well."""
    return {target: planter.held(target) for target in TARGETS}


@pytest.fixture(scope="module")
def planted(planter: Planter, before: dict[Target, dict[str, Any]]) -> dict[Target, Planted]:
    """Four wrong documents in each."""
    return {target: planter.plant(target, sorted(before[target])[3:6]) for target in TARGETS}


def verify(scenario: Scenario, *options: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(scenario.run("verify", "--json", *options, ok=ok))
    return report


def views(report: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(sink["sink"], view["view"]): view for sink in report["sinks"] for view in sink["views"]}


def assert_exactly(report: dict[str, Any], planter: Planter, planted: dict[Target, Planted]) -> None:
    wanted = {(target.sink, planter.name(target)): wrong.as_reported() for target, wrong in planted.items()}
    for at, view in views(report).items():
        found = {kind: sorted(view[kind]) for kind in ("missing", "extra", "changed") if view[kind]}
        assert found == wanted.get(at, {}), at
        assert view["differences"] == (4 if at in wanted else 0) and not view["undecided"]
        assert view["caught_up"] is (True if at in wanted else None)


def test_exactly_what_was_planted_is_found(
    scenario: Scenario, planter: Planter, planted: dict[Target, Planted]
) -> None:
    report = verify(scenario, "--wait", "60", ok=(2,))
    assert not report["equal"] and report["sample"] is None
    assert_exactly(report, planter, planted)


def test_a_sample_of_everything_finds_it_too(
    scenario: Scenario, planter: Planter, planted: dict[Target, Planted]
) -> None:
    report = verify(scenario, "--sample", "100000", "--seed", "7", "--wait", "60", ok=(2,))
    assert report["sample"] == {"rows": 100_000, "seed": 7}
    assert all(view["sampled"] for view in views(report).values())
    assert_exactly(report, planter, planted)


def test_a_small_sample_is_small_and_the_same_again(scenario: Scenario, planted: dict[Target, Planted]) -> None:
    first, second = (verify(scenario, "--sample", "5", "--seed", "3", "--sink", "cache", ok=(0, 2)) for _ in range(2))
    for at, view in views(first).items():
        assert 5 <= view["expected"] + view["differences"] <= 12, at
    assert [v["missing"] for v in views(first).values()] == [v["missing"] for v in views(second).values()]


def test_repair_writes_these_and_no_others(
    scenario: Scenario, planter: Planter, planted: dict[Target, Planted], before: dict[Target, dict[str, Any]]
) -> None:
    report = verify(scenario, "--repair", "--wait", "60")
    assert report["equal"]
    wanted = {(target.sink, planter.name(target)) for target in TARGETS}
    for at, view in views(report).items():
        assert (view["repaired"], view["not_repaired"]) == (4 if at in wanted else 0, []), at
    for target, wrong in planted.items():
        after = planter.held(target)
        assert {key: one.digest for key, one in after.items()} == {
            key: one.digest for key, one in before[target].items()
        }
        others = before[target].keys() - wrong.keys
        assert {key: after[key].version for key in others} == {key: before[target][key].version for key in others}


def test_later_changes_still_arrive(scenario: Scenario, planted: dict[Target, Planted]) -> None:
    for statement in CHANGES:
        scenario.execute(statement)
    scenario.execute("INSERT INTO orders (order_id, customer_id, placed) SELECT 999999, customer_id, now() "
                     "FROM customers LIMIT 1")  # fmt: skip
    assert verify(scenario, "--wait", "120")["equal"]
    scenario.execute("DELETE FROM orders WHERE order_id = 999999")
    assert verify(scenario, "--wait", "120")["equal"]


def test_rows_that_move_are_no_false_alarm(scenario: Scenario, planted: dict[Target, Planted]) -> None:
    with scenario.load(seed=5, seconds=45, rate=60):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            report = verify(scenario, "--wait", "30", ok=(0, 2))
            assert report["equal"], report


def test_an_audit_goes_on_until_it_is_stopped(scenario: Scenario, planted: dict[Target, Planted]) -> None:
    metric = Path(scenario.folder / "state" / scenario.name / "verify.prom")
    words = [sys.executable, "-m", "console.cli", "verify", str(scenario.file), "--every", "1", "--sample", "20"]
    words += ["--wait", "30"]
    process = subprocess.Popen(words, env=scenario.environment(), stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 400
        kept = ""
        while not (kept and value(kept, "runs_total") >= 2):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.5)
            kept = metric.read_text() if metric.exists() else ""
    finally:
        os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "rows of a sample" in said and "equal" in said
    assert value(kept, "equal") == 1 and value(kept, "errors_total") == 0
    assert value(kept, "sample_rows") == 20
    assert not metric.exists()  # what nobody looks at any more is not told as what is so


def value(text: str, name: str) -> float:
    [line] = [line for line in text.splitlines() if line.startswith(f"headwater_verify_{name}{{")]
    return float(line.rsplit(" ", 1)[1])


def test_without_a_runner_nothing_is_proved_or_repaired(scenario: Scenario, planted: dict[Target, Planted]) -> None:
    """The runner is stopped and rows change: they differ, and are not written by guess."""
    scenario.stop()
    scenario.execute("UPDATE orders SET note = 'while it is away' WHERE order_id = (SELECT min(order_id) FROM orders)")
    options = ("--sink", "cache", "--repair", "--wait", "1")
    report = verify(scenario, *options, ok=(2,))
    changed = [view for view in views(report).values() if view["differences"]]
    assert changed and all(view["caught_up"] is False and view["repaired"] == 0 for view in changed)
    assert "headwater run" in changed[0]["not_repaired"][0]["why"]
    assert not list((scenario.folder / "state" / scenario.name).glob(".verify-*"))
