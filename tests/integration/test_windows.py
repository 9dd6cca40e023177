"""Windows are what plain Python makes of the same events, however batches are cut and whatever is killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.happened import CLOSED, Log, history, kept, topic_of
from tests.support.timed import MATCHES, VIEWS
from tests.support.windowed import matched, plainly

pytestmark = [pytest.mark.stack, pytest.mark.sampled]


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    """A topic with a history of its own."""
    with topic_of(history(random.randrange(1 << 30))) as made:
        yield made


# Tables are the same but for their last step: some of the views are enough for that.
WINDOWED = [*((kind, "redis") for kind in VIEWS), ("tumbling", "iceberg"), ("session", "iceberg")]
MATCHED = [*((kind, "redis") for kind in MATCHES), ("all", "iceberg"), ("alone", "iceberg")]


@pytest.mark.parametrize(("kind", "sink"), WINDOWED)
def test_windows_equal_plain_python_whatever_is_killed(log: Log, kind: str, sink: str, tmp_path: Path) -> None:
    wanted = plainly(VIEWS[kind], log.made)
    documents = kept(log, "window", VIEWS[kind], kind, tmp_path, sink)
    found = {key_of(kind, document): document for document in documents.values()}
    assert found.keys() == wanted.keys()
    for key, document in found.items():
        compare(wanted[key], document)
    assert len(wanted) > 100
    if kind == "corrected":
        assert any(document["late"] for document in documents.values())


@pytest.mark.parametrize(("kind", "sink"), MATCHED)
def test_matches_equal_plain_python_whatever_is_killed(log: Log, kind: str, sink: str, tmp_path: Path) -> None:
    view = MATCHES[kind]
    wanted = matched(view, log.made, CLOSED)
    found = kept(log, "match", view, kind, tmp_path, sink)
    assert found.keys() == wanted.keys()
    rows = {event["id"]: event for _, event, again, _ in log.made if not again}
    for key, document in found.items():
        assert (document["key"], moment(document["at"])) == (rows[key]["aggregateid"], rows[key]["at"])
        told = wanted[key]
        assert document["late"] == told["late"], (document, told)
        if view.count:
            assert (document["count"], moment(document["since"])) == (told["n"], told["since"])
        elif view.keep != "alone":
            assert (document["count"], document["followed"]) == (told["n"], told["n"] > 0)
            assert [(moment(one["at"]), one["amount"]) for one in document["then"]] == told["then"]
    assert len(wanted) > 10


def key_of(kind: str, document: dict[str, Any]) -> tuple[Any, ...]:
    view = VIEWS[kind]
    start = moment(document["window_start"])
    return document.get("grouping", ",".join(view.groupings[0])), tuple(document[name] for name in view.by), start


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def compare(wanted: dict[str, Any], document: dict[str, Any]) -> None:
    """Exactly, but for what is approximate: that within its bound."""
    assert moment(document["window_end"]) == wanted["end"]
    for name in ("n", "amounts", "word", "sign", "late"):
        assert document[name] == wanted[name], (name, wanted, document)
    assert moment(document["latest"]) == wanted["latest"]
    for name, digits in (("total", 2), ("least", 2), ("mean", 6)):
        assert document[name] == (None if wanted[name] is None else f"{wanted[name]:.{digits}f}"), (name, wanted)
    assert abs(document["users"] - wanted["users"]) <= max(1, wanted["users"] * 0.05)
    values = wanted["values"]
    if values:
        assert (
            values[int(len(values) * 0.85) - 1]
            <= document["p90"]
            <= values[min(len(values) - 1, int(len(values) * 0.95))]
        )
