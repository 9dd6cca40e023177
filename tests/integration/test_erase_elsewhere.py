"""A person's row is erased from a warehouse in a bucket behind a REST catalogue, and from topics in Avro.

As in test_erase.py every file of every server is looked into, and every object of the bucket; what differs there from
a folder and from JSON is proved here, and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.erased import LAKE
from tests.support.erased_elsewhere import ErasedElsewhere
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

KEY, VALUE = 4711, secrets.token_urlsafe(36)


@pytest.fixture(scope="module")
def persons(local_stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErasedElsewhere]:
    """Captured and followed."""
    local_stack.up(more=["registry"])
    made = ErasedElsewhere(local_stack, tmp_path_factory.mktemp("elsewhere"))
    with made.serving(), made.running():
        made.readable(allowed=True)
        yield made


def test_it_is_found_in_the_bucket_and_in_avro_and_then_nowhere(persons: ErasedElsewhere) -> None:
    persons.plant(KEY, VALUE)
    persons.remove(KEY, VALUE)
    assert len(persons.schemas("persons")) == 1, "the topic is not in Avro"
    report = persons.erase(KEY, ok=(2,))
    seen = {place["kind"] for place in report["places"] if place["found"]}
    assert {"topic", "letters", "table", "history"} <= seen, report
    before = persons.found(VALUE)
    assert persons.places <= before.keys(), before
    # It is in data files, and its first letters are in manifests.
    assert {"parquet", "avro"} <= {path.rpartition(".")[2] for path in before[LAKE]}, before[LAKE]
    report = persons.erase(KEY, "--yes", "--tags", "move")
    assert report["erased"], report
    assert persons.found(VALUE) == {}
    # It goes on, and nothing else was lost.
    persons.execute("INSERT INTO persons VALUES (%s, 'Eve', 'other', '8')", KEY)
    persons.assert_equal("--sink", LAKE)
