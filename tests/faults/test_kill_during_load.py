"""kill -9 of each part while an application writes: afterwards every sink equals Postgres, row by row."""

import json
import time
import uuid

import pytest

from tests.support.scenario import Scenario

pytestmark = [pytest.mark.stack, pytest.mark.fault]

# Turns by hand: one or two of them in each run, for each takes a minute and more.
LOAD_SECONDS, KILL_AFTER = 14.0, 4.0


@pytest.mark.sampled(part=1)
def test_nothing_killed(scenario: Scenario) -> None:
    with scenario.load(seed=1, seconds=8):
        pass
    report = scenario.assert_equal()
    assert {sink["sink"] for sink in report["sinks"]} == {"search", "cache", "warehouse"}


@pytest.mark.sampled(part=0)
def test_fault_03_spark_is_killed(scenario: Scenario) -> None:
    with scenario.load(seed=2, seconds=LOAD_SECONDS):
        time.sleep(KILL_AFTER)
        scenario.kill()
    scenario.start()
    scenario.assert_equal()


@pytest.mark.sampled(part=3)
def test_fault_15_a_poison_document_is_quarantined_alone(scenario: Scenario) -> None:
    poison, good = str(uuid.uuid4()), str(uuid.uuid4())
    insert = (
        "INSERT INTO customers (customer_id, email, name, registered) VALUES (%s, %s, %s, now()), (%s, %s, %s, now())"
    )
    values = (poison, f"{poison}@example.org", "x" * 40_000, good, f"{good}@example.org", "good")
    scenario.execute(insert, *values)
    scenario.assert_equal("--sink", "cache", "--sink", "warehouse")
    scenario.readable(allowed=True)
    report = json.loads(scenario.run("verify", "--json", "--sink", "search", "--wait", "5", ok=(2,)))
    wrong = {view["view"]: (view["missing"], view["differences"]) for view in report["sinks"][0]["views"]}
    wrong = {name: found for name, found in wrong.items() if found[1]}
    assert wrong == {scenario.view(name): ([poison], 1) for name in ("customer", "customer_card")}
    letters = {item["view"]: item for item in scenario.dead_letters() if item["key"] == poison}
    assert letters.keys() == wrong.keys()
    letter = letters[scenario.view("customer")]
    assert letter["sink"] == "search"
    assert "immense term" in letter["reason"] and len(letter["reason"]) < 1000
    assert letter["topic"] == f"{scenario.name}.public.customers"
    scenario.execute("DELETE FROM customers WHERE customer_id = %s", poison)
    scenario.assert_equal("--sink", "search")


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("connect", marks=pytest.mark.slow),
        pytest.param("kafka", marks=pytest.mark.slow),
        pytest.param("elasticsearch", marks=pytest.mark.slow),
        pytest.param("redis-cache", marks=pytest.mark.slow),
        "redis-store",
    ],
)
@pytest.mark.alone
@pytest.mark.sampled(part=2)
def test_fault_16_a_server_is_killed(scenario: Scenario, server: str) -> None:
    with scenario.load(seed=hash(server) % 1000, seconds=LOAD_SECONDS):
        time.sleep(KILL_AFTER)
        scenario.stack.kill(server)
        time.sleep(2)
        scenario.stack.up()
    if server == "redis-cache":
        # The cache server keeps nothing on disk: what it held is gone with it, and the sink must be filled anew.
        scenario.stop()
        scenario.run("drop", "--sink", "cache", "--yes")
        scenario.start()
    scenario.assert_equal()
    assert scenario.runner is not None and scenario.runner.poll() is None


@pytest.mark.sampled(part=1)
def test_fault_03_a_batch_whose_commit_was_lost_is_replayed(scenario: Scenario) -> None:
    scenario.stop()
    with scenario.load(seed=7, seconds=4):
        pass
    scenario.start()
    scenario.stop()
    removed = 0
    for commits in (scenario.folder / "state").glob("**/checkpoint/commits"):
        newest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        newest.unlink()
        removed += 1
    assert removed >= 6
    scenario.start()
    scenario.assert_equal()


@pytest.mark.sampled(part=4)
def test_fault_31_a_lost_checkpoint_is_refused_and_its_return_goes_on(scenario: Scenario) -> None:
    scenario.stop()
    flow = scenario.folder / "state" / scenario.name / "search" / "g1" / "main"
    (flow / "checkpoint").rename(flow / "elsewhere")
    scenario.run("run", "--sink", "search", "--until-caught-up", "--timeout", "120", ok=(1,))
    assert "the checkpoint of search/main is gone" in scenario.status_of("search", "main")["last_error"]
    (flow / "elsewhere").rename(flow / "checkpoint")
    scenario.start()
    scenario.assert_equal("--sink", "search")


@pytest.mark.sampled(part=5)
def test_a_lost_state_folder_over_a_filled_target_is_refused(scenario: Scenario) -> None:
    scenario.stop()
    folder = scenario.folder / "state" / scenario.name / "cache"
    folder.rename(folder.with_name("kept"))
    scenario.run("run", "--sink", "cache", "--until-caught-up", "--timeout", "120", ok=(1,))
    assert "holds rows, but nothing in" in scenario.status_of("cache", "main")["last_error"]
    scenario.run("drop", "--sink", "cache", "--yes")
    scenario.start()
    scenario.assert_equal("--sink", "cache")
