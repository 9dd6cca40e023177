"""Fill the wiki: ``python -m examples.wiki.load``. The same rows every time; a second run changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from examples.common import PostgresEndpoint
from examples.filling import Row, command, fill

OWNER = "wiki_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
EDITORS, EDITS = 12, 150
TITLES = ("Log", "Table", "Replica", "Snapshot", "Fence", "Epoch", "Compaction", "Æther", "Backpressure", "Cache")
SENTENCES = (
    "A log is an ordered sequence of records.",
    "What was written once is not changed.",
    "Readers remember how far they have read.",
    "A table is a log, folded.",
    "Citation needed.",
    "Siehe auch: Übersicht.",
)
START = datetime(2024, 3, 1, tzinfo=UTC)


def rows(seed: int = 1) -> Iterator[tuple[str, list[Row]]]:
    """(table, its rows), in the order in which foreign keys allow them."""
    rng = Random(seed)
    texts = dict.fromkeys(range(1, len(TITLES) + 1), "")
    current: dict[int, int] = {}
    edits: list[Row] = []
    at = START
    for edit in range(1, EDITS + 1):
        page = rng.choice(list(texts)[:-1])  # the last page has no edit yet
        before, minor = texts[page], rng.random() < 0.3
        after = before.replace("Citation needed.", "") if minor else f"{before} {rng.choice(SENTENCES)}".strip()
        texts[page], current[page] = after, edit
        at += timedelta(minutes=rng.randrange(0, 200))
        editor = rng.choice((None, *range(1, EDITORS + 1)))
        summary = rng.choice((None, "typo", "more", "rv"))
        edits.append((edit, page, editor, at, minor, summary, len(after) - len(before), after))
    yield "editors", [(n, f"Editor {n}") for n in range(1, EDITORS + 1)]
    yield "pages", [(n, title, current.get(n)) for n, title in enumerate(TITLES, 1)]
    yield "edits", edits


def load(endpoint: PostgresEndpoint, database: str = "wiki", owner: str = OWNER) -> str:
    """See ``examples.filling.fill``; returns the owner's connection string."""
    return fill(endpoint, database, owner, SCHEMA, rows)


main = command("wiki", load, "the wiki", f"{len(TITLES)} pages, {EDITS} edits")

if __name__ == "__main__":
    main()
