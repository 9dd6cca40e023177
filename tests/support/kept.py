"""What an earlier version has left behind (tests/fixtures/state_*), for tests to go on from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinks.rowstore.memory.store import MemoryStore
from tests.support import redis_dump

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLACE = "/srv/headwater"  # stands for the folder that the pipeline ran in


@dataclass(frozen=True)
class Kept:
    """One moment of one version.

    Attributes:
        version: the folder's name, e.g. ``state_0_1``.
        moment: ``first`` (every sink in generation 1) or ``second`` (the cache in 1 and 2).
    """

    version: str
    moment: str

    def read(self, name: str) -> Any:
        """A JSON file of this moment: ``state``, ``rowstore``, ``cache``, ``search``."""
        return json.loads((FIXTURES / self.version / self.moment / f"{name}.json").read_text())

    def files(self) -> dict[str, str]:
        """Path below ``engine.state_dir`` -> text."""
        return {entry["path"]: entry["text"] for entry in self.read("state")}

    def restore_state(self, folder: Path) -> None:
        """Write the state folder anew.

        Args:
            folder: the pipeline's place; its state goes to ``state`` below it.
        """
        for path, text in self.files().items():
            target = folder / "state" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace(PLACE, str(folder)))

    def restore_keys(self, name: str, client: Any) -> None:
        """Write every key of ``rowstore`` or ``cache`` into a real server."""
        redis_dump.restore(client, self.read(name))

    def row_store(self, sink: str, view: str, generation: int = 1, pipeline: str = "keepsake") -> MemoryStore:
        """One view's rows in the double in memory."""
        entries = self.read("rowstore")
        owner = f"{pipeline}/{sink}/{view}/g{generation}"
        namespace = next(prefix for prefix, name in redis_dump.namespaces(entries).items() if name == owner)
        return redis_dump.in_memory(entries, namespace)


def records(version: str) -> list[dict[str, Any]]:
    """Every record of the topics: ``topic``, ``partition``, ``offset``, ``timestamp_ms``, and bytes or None."""
    found = json.loads((FIXTURES / version / "topics.json").read_text())
    return [
        record | {part: record[part] and redis_dump.raw(record[part]) for part in ("key", "value")} for record in found
    ]
