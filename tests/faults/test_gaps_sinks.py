"""A gap at the source, as an operator meets it: the runner stops, the command in its message mends all sinks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
import requests
from ruamel.yaml import YAML

from tests.support.scenario import SHOP, Scenario
from tests.support.servers import Servers
from tests.support.source import eventually

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(scope="module")
def scenario(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """A captured shop whose warehouse names each of its tables."""
    tables = YAML(typ="safe").load(SHOP.read_text())["source"]["tables"]
    made = Scenario(local_stack, tmp_path_factory.mktemp("scenario"), extra={"sinks.warehouse.tables": tables})
    with made.running():
        yield made


def states(scenario: Scenario) -> dict[str, str]:
    report = scenario.status()
    return {f"{s['sink']}/{flow['flow']}": flow["state"] for s in report["sinks"] for flow in s["flows"]}


def reading(scenario: Scenario) -> set[str]:
    """The flows that read order_items."""
    found = {"search/main", "cache/main", f"cache/{scenario.view('order_card')}", "warehouse/order_items"}
    assert found < states(scenario).keys(), states(scenario)
    return found


def stopped(scenario: Scenario, flows: set[str]) -> bool:
    """Whether these flows are stopped and all others run."""
    now = states(scenario)
    return {flow for flow, state in now.items() if state == "failed"} == flows and {
        state for flow, state in now.items() if flow not in flows
    } == {"running"}


def drop_slot(scenario: Scenario) -> None:
    """As somebody does while the connector is away; changes go on."""
    ends = scenario.stack.endpoints
    url = f"{ends.connect_url}/connectors/headwater-{scenario.name}"
    requests.put(f"{url}/stop", timeout=30).raise_for_status()
    with psycopg.connect(
        host=ends.postgres_host,
        port=ends.postgres_port,
        user=ends.postgres_superuser,
        password=ends.postgres_password,
        dbname=scenario.name,
        autocommit=True,
    ) as root:
        free = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        slot = f"headwater_{scenario.name}"
        assert eventually(lambda: root.execute(free, [slot]).fetchone() == (False,), 60)
        root.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    with scenario.load(seed=31, seconds=5):
        pass


def test_fault_06_a_runner_stops_at_a_lost_slot_and_all_sinks_get_well(scenario: Scenario) -> None:
    runner = scenario.runner
    assert runner is not None
    drop_slot(scenario)
    assert eventually(lambda: runner.poll() is not None, 90), "it looks every half minute"
    assert runner.returncode == 1
    scenario.runner = None
    assert "is gone, but the connector has read up to" in scenario.log()
    assert re.search(r"headwater resnapshot \S+/pipeline.yaml --all", scenario.log())
    scenario.run("run", "--until-caught-up", "--timeout", "60", ok=(1,))
    scenario.run("apply", ok=(1,))
    scenario.readable(allowed=True)
    scenario.run("resnapshot", "--all")
    scenario.readable(allowed=False)
    scenario.start()
    scenario.assert_equal()
    with scenario.load(seed=32, seconds=5):
        pass
    scenario.assert_equal()


def test_a_swapped_table_stops_its_flows_alone_and_one_apply_mends_them(scenario: Scenario) -> None:
    flows = reading(scenario)
    scenario.execute("CREATE TABLE items_new (LIKE order_items INCLUDING ALL)")
    scenario.execute("INSERT INTO items_new SELECT * FROM order_items WHERE line = 1")
    scenario.execute("ALTER TABLE order_items RENAME TO items_old; ALTER TABLE items_new RENAME TO order_items")
    assert eventually(lambda: stopped(scenario, flows), 40), states(scenario)
    scenario.execute("UPDATE order_items SET quantity = quantity + 1")
    said = "table public.order_items was renamed to public.items_old, and another table has its name"
    assert said in scenario.log()
    assert said in scenario.run("check", ok=(1,))
    assert said in scenario.run("status")
    assert "public.order_items: rows will be read" in scenario.run("plan", ok=(2,))
    # A second one, as after a crash, does not start green either; nor is anything filled from such a topic.
    assert said in scenario.run_error("rebuild", "cache")
    scenario.readable(allowed=True)
    scenario.run("apply", "--wait")
    scenario.readable(allowed=False)
    scenario.wait(lambda report: all(sink["state"] == "running" for sink in report["sinks"]), 60)
    scenario.assert_equal()


def test_a_table_that_is_gone_stops_its_flows_alone_also_after_a_start(scenario: Scenario) -> None:
    flows = reading(scenario)
    # A migration that changes another table too has every sink opened anew.
    scenario.execute("ALTER TABLE order_items RENAME TO parts; ALTER TABLE customers ADD COLUMN note text")
    assert eventually(lambda: stopped(scenario, flows), 40), states(scenario)
    scenario.execute("UPDATE customers SET note = 'while it runs'")
    scenario.stop()
    scenario.launch()
    said = "table public.order_items was renamed to public.parts"
    assert eventually(lambda: stopped(scenario, flows), 90), f"{states(scenario)}\n{scenario.log()}"
    assert said in scenario.run("check", ok=(1,))
    assert said in scenario.run_error("rebuild", "warehouse")
    scenario.execute("UPDATE customers SET note = 'after a start' WHERE name < 'N'")
    scenario.wait(
        lambda report: all(
            flow["lag_events"] == 0
            for sink in report["sinks"]
            for flow in sink["flows"]
            if f"{sink['sink']}/{flow['flow']}" not in flows
        )
    )
    scenario.execute("ALTER TABLE parts RENAME TO order_items")
    scenario.readable(allowed=True)
    scenario.run("apply", "--wait")
    scenario.readable(allowed=False)
    scenario.wait(lambda report: all(sink["state"] == "running" for sink in report["sinks"]), 90)
    scenario.assert_equal()
