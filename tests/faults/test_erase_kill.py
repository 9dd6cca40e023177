"""kill -9 of an erasure at each of its steps: the same command goes on, and at its end nothing of the value is left.

Two generations of the index have the row, and the warehouse's history and a tag. Each time that the command is called
it is killed a step later than before, at once or in the middle of the step, until it has ended.
"""

from __future__ import annotations

import json
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.log.client import Kafka
from tests.support.erased import Erased
from tests.support.killing import kill_family
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.slow]

KEY, VALUE = 4711, secrets.token_urlsafe(36)
SEED, MOST_CALLS, LEAST_KILLS = 11, 40, 6
# Of a step that has just been told of.
MIDDLE_SECONDS = 1.5


@pytest.fixture(scope="module")
def persons(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Erased]:
    """Captured and followed."""
    made = Erased(local_stack, tmp_path_factory.mktemp("erasekill"))
    with made.running():
        made.readable(allowed=True)
        yield made


def erase(persons: Erased, step: int, pause: float) -> tuple[int | None, str]:
    """Call it, and kill it when it has told of so many steps; (its exit code, None if it was killed; its last step)."""
    command = [sys.executable, "-m", "console.cli", "erase", str(persons.file), "persons", str(KEY)]
    process = subprocess.Popen(
        [*command, "--yes", "--tags", "move"],
        env=persons.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr:
        line = ""
        for told, line in enumerate(process.stderr, 1):
            if told == step:
                time.sleep(pause)
                kill_family(process.pid)
                process.wait(30)
                return None, line
    return process.wait(30), line


@pytest.mark.timeout(1800)
def test_an_erasure_that_is_killed_at_every_step_ends_with_nothing_left(persons: Erased, tmp_path: Path) -> None:
    rng, topics = random.Random(SEED), [f"{persons.name}.public.persons", f"{persons.name}.dead-letters"]
    persons.plant(KEY, VALUE)
    persons.run("rebuild", "search")
    persons.run("promote", "search")
    persons.remove(KEY, VALUE)
    kafka = Kafka(persons.pipeline())
    were = kafka.describe(topics)
    assert persons.places <= persons.found(VALUE).keys()
    killed, code = list[str](), None
    for call in range(1, MOST_CALLS + 1):
        code, line = erase(persons, call, rng.choice([0.0, rng.uniform(0.0, MIDDLE_SECONDS)]))
        print(f"call {call}: {'killed at' if code is None else f'ended with {code} after'} {line.strip()}", flush=True)
        if code is not None:
            break
        killed.append(line)
    assert code == 0 and len(killed) >= LEAST_KILLS, killed
    assert persons.found(VALUE) == {}
    assert kafka.describe(topics) == were
    assert not list(Path(persons.pipeline().engine.state_dir).rglob("erasing.json"))
    report = json.loads(persons.run("erase", "persons", str(KEY), "--json"))
    assert report["found"] == 0 and {place["generation"] for place in report["places"]} >= {1, 2}
    persons.execute("INSERT INTO persons VALUES (%s, 'Eve', 'other', '8')", KEY)
    persons.execute("UPDATE orders SET code = '5' WHERE id = 901")  # which the index has refused until now
    persons.eventually(lambda: str(KEY) in persons.in_elasticsearch("person"))
    persons.eventually(lambda: not [sink for sink in persons.status()["sinks"] if sink["state"] == "paused"])
    persons.assert_equal()
