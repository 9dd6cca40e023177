"""A person's row is erased: what is looked for in every file of every server is found before, and not afterwards."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import TagsHold
from cdc.log.client import Kafka
from tests.support.erased import LAKE, Erased
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=2, of=4)]

KEY = 4711
# In an alphabet of 64, so that nothing else matches a piece of it and what compresses leaves it as it is.
VALUE = secrets.token_urlsafe(36)


@pytest.fixture(scope="module")
def persons(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Erased]:
    """Captured and followed."""
    made = Erased(local_stack, tmp_path_factory.mktemp("erased"))
    with made.running():
        made.readable(allowed=True)
        yield made


def erase(persons: Erased, *options: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(persons.run("erase", "persons", str(KEY), "--json", *options, ok=ok))
    return report


def places(persons: Erased) -> set[str]:
    """Where a value of a person's lies when it has been everywhere."""
    return {f"{persons.name}.public.persons-0", f"{persons.name}.dead-letters-0", "elasticsearch", "row-store", LAKE}


def plant(persons: Erased) -> None:
    """A person, of whom the index first refuses the document; an order that it refuses and one that shows her; and then
    she changes, and is in every sink."""
    persons.execute("INSERT INTO persons VALUES (%s, 'Ann', %s, 'no number')", KEY, VALUE)
    persons.execute("INSERT INTO orders VALUES (901, %s, 'book', 'no number'), (902, %s, 'pen', '5')", KEY, KEY)
    persons.eventually(lambda: len(persons.dead_letters()) >= 2)
    persons.execute("UPDATE persons SET code = '5' WHERE id = %s", KEY)
    persons.eventually(lambda: str(KEY) in persons.in_elasticsearch("person"))
    persons.eventually(lambda: VALUE in str(persons.in_elasticsearch("order_card")))
    persons.eventually(lambda: VALUE in str(persons.in_redis("order_card")))
    persons.run("as-of", "--tag", "before", "--wait", "60")


def test_a_row_that_is_in_the_source_is_refused(persons: Erased) -> None:
    plant(persons)
    said = persons.run_error("erase", "persons", str(KEY), "--yes")
    assert "is in the source" in said and "DELETE it" in said
    report = erase(persons, ok=(2,))
    assert any("is in the source" in line for line in report["refused"])
    found = persons.found(VALUE)
    assert places(persons) | {"cache", "row-store-memory"} <= found.keys(), found


def test_after_its_delete_it_is_still_everywhere(persons: Erased) -> None:
    persons.execute("DELETE FROM persons WHERE id = %s", KEY)
    persons.eventually(lambda: str(KEY) not in persons.in_redis("person"))
    persons.eventually(lambda: VALUE not in str(persons.in_redis("order_card")))
    persons.eventually(lambda: not erase(persons, ok=(0, 2))["refused"])
    report = erase(persons, ok=(2,))
    seen = {place["kind"] for place in report["places"] if place["found"]}
    assert {"topic", "letters", "table", "history"} <= seen, report
    assert places(persons) <= persons.found(VALUE).keys()


def test_tags_that_keep_it_are_refused(persons: Erased) -> None:
    said = persons.run_error("erase", "persons", str(KEY), "--yes")
    assert f"[{TagsHold.code}]" in said and "before" in said
    assert places(persons) <= persons.found(VALUE).keys()


def test_it_is_erased_everywhere(persons: Erased, tmp_path: Path) -> None:
    topic = f"{persons.name}.public.persons"
    kafka = Kafka(persons.pipeline())
    were = kafka.describe([topic, f"{persons.name}.dead-letters"])
    before = persons.run("as-of", "--cut", "before", "--json")
    path = tmp_path / "certificate.json"
    report = erase(persons, "--yes", "--tags", "move", "--certificate", str(path))
    assert report["erased"], report
    assert persons.found(VALUE) == {}
    # What was other meanwhile is as it was.
    assert kafka.describe([topic, f"{persons.name}.dead-letters"]) == were
    assert not list(Path(persons.pipeline().engine.state_dir).rglob("erasing.json"))
    assert not [sink for sink in persons.status()["sinks"] if sink["state"] == "paused"]
    # A certificate names what was found and what is left, and nothing of the row.
    text = path.read_text()
    assert json.loads(text) == report and VALUE not in text and f'"{KEY}"' not in text
    assert json.loads(persons.run("as-of", "--cut", "before", "--json"))["cut"] == json.loads(before)["cut"]
    assert erase(persons)["found"] == 0


def test_the_pipeline_goes_on(persons: Erased) -> None:
    persons.execute("INSERT INTO persons VALUES (%s, 'Eve', 'other', '8')", KEY)
    persons.eventually(lambda: str(KEY) in persons.in_elasticsearch("person"))
    persons.assert_equal()
