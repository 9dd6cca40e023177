"""What is left of a row that was erased: files and keys of every server that still hold a value of it. The aim is none.

``python -m benchmarks.run erase``. The value is looked for in each file of Kafka, Elasticsearch, Redis and the
warehouse, unpacked; it must have been found in all of them before.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path

from benchmarks.results import Measurement
from tests.support.erased import Erased
from tests.support.local import ready

KEY = 4711


def measure() -> list[Measurement]:
    """How many places hold the value before and after, and what the erasure takes."""
    command = "python -m benchmarks.run erase"
    value = secrets.token_urlsafe(36)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        persons = Erased(ready(), Path(folder))
        with persons.running():
            persons.readable(allowed=True)
            persons.plant(KEY, value)
            persons.remove(KEY, value)
            before = persons.found(value)
            assert persons.places <= before.keys(), f"the search does not find it where it is: {before.keys()}"
            began = time.monotonic()
            persons.erase(KEY, "--yes", "--tags", "move", ok=(0, 2))
            took = time.monotonic() - began
            after = persons.found(value)
    found = {name: sum(map(len, held.values())) for name, held in (("before", before), ("after", after))}
    return [
        Measurement("erase_found_after", found["after"], "files", found["before"], command=command),
        Measurement("erase_s", round(took, 1), "s", 1, command=command),
    ]
