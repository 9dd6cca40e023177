"""A person's row is erased: what is looked for in every file of every server is found before, and not afterwards."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.errors import TagsHold
from cdc.log.client import Kafka
from tests.support.erased import Erased
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

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


def test_a_row_that_is_in_the_source_is_refused(persons: Erased) -> None:
    persons.plant(KEY, VALUE)
    said = persons.run_error("erase", "persons", str(KEY), "--yes")
    assert "is in the source" in said and "DELETE it" in said
    report = persons.erase(KEY, ok=(2,))
    assert any("is in the source" in line for line in report["refused"])
    found = persons.found(VALUE)
    assert persons.places | {"row-store-memory"} <= found.keys(), found


def test_after_its_delete_it_is_still_everywhere(persons: Erased) -> None:
    persons.remove(KEY, VALUE)
    report = persons.erase(KEY, ok=(2,))
    seen = {place["kind"] for place in report["places"] if place["found"]}
    assert {"topic", "letters", "table", "history"} <= seen, report
    assert persons.places <= persons.found(VALUE).keys()


def test_tags_that_keep_it_are_refused(persons: Erased) -> None:
    said = persons.run_error("erase", "persons", str(KEY), "--yes")
    assert f"[{TagsHold.code}]" in said and "before" in said
    assert persons.places <= persons.found(VALUE).keys()


def test_it_is_erased_everywhere(persons: Erased, tmp_path: Path) -> None:
    topic = f"{persons.name}.public.persons"
    kafka = Kafka(persons.pipeline())
    were = kafka.describe([topic, f"{persons.name}.dead-letters"])
    before = persons.run("as-of", "--cut", "before", "--json")
    path = tmp_path / "certificate.json"
    report = persons.erase(KEY, "--yes", "--tags", "move", "--certificate", str(path))
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
    assert persons.erase(KEY)["found"] == 0


def test_the_pipeline_goes_on(persons: Erased) -> None:
    persons.execute("INSERT INTO persons VALUES (%s, 'Eve', 'other', '8')", KEY)
    persons.execute("UPDATE orders SET code = '5' WHERE id = 901")
    persons.eventually(lambda: str(KEY) in persons.in_elasticsearch("person"))
    persons.assert_equal()
