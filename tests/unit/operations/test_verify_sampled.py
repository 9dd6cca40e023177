"""A sample of a view: what must be there is drawn as well as what is, whatever a view's documents are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.stateful import StatefulView
from cdc.view import View
from operations.holding import Holds
from operations.verify import looks
from operations.verify.comparison import Comparison
from operations.verify.settle import Settler
from tests.support.folds import view_of
from tests.support.timed import EVENTS, MATCHES, VIEWS
from truth.digest import digest
from truth.expected import Expected

MANY = 300
STATEFUL = [VIEWS["tumbling"], MATCHES["all"], view_of("events")]


@pytest.fixture
def settler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a view of which the log makes ``MANY`` documents, and some that need not be there; over what a sink holds."""

    @contextmanager
    def snapshot(_source: object) -> Iterator[None]:
        yield None

    def expected(view: View, _connection: object, _spark: object, keys: Any = None, **_: object) -> Iterator[Expected]:
        assert keys is None or not isinstance(view, StatefulView)
        for number in range(MANY):
            if keys is None or str(number) in keys:
                yield Expected(str(number), b"{}", {"n": number})
        if keys is None:
            yield Expected("may be", b"{}", None, unsure=True)

    def made(view: View, held: Sequence[int]) -> Settler:
        there = {str(number): Holds(1, digest({"n": number})) for number in held}
        opened = SimpleNamespace(pipeline=SimpleNamespace(source=None), form=lambda _view: "document")
        holding: Any = SimpleNamespace(
            opened=opened,
            within=0,
            sample=lambda count, _seed: list(there)[:count],
            get=lambda keys: {key: there[key] for key in keys if key in there},
        )
        return Settler(view, holding, None, None, tmp_path)  # type: ignore[arg-type]

    monkeypatch.setattr(looks, "snapshot", snapshot)
    monkeypatch.setattr(looks, "log_ends", lambda *_: {})
    monkeypatch.setattr(looks, "Log", lambda *_: None)
    monkeypatch.setattr(looks, "logged", lambda *_: None)
    monkeypatch.setattr(looks, "expected", expected)
    return made


@pytest.mark.parametrize("view", STATEFUL, ids=lambda view: view.made)
def test_what_a_sink_has_lost_of_a_view_made_of_events_is_in_the_sample(settler: Any, view: View) -> None:
    """Of windows and matches only the sink's own documents were drawn, and of a fold the rows of an empty outbox:
    verify said `equal` of a sink that had lost all of them."""
    result = Comparison("v")
    assert settler(view, []).look(result, 20, 1).count == result.differences == 20
    assert (result.expected, result.compared, len(set(result.missing))) == (20, 0, 20)
    again, other = Comparison("v"), Comparison("v")
    settler(view, []).look(again, 20, 1)
    settler(view, []).look(other, 20, 2)
    assert again.missing == result.missing != other.missing
    few = Comparison("v")
    settler(view, range(MANY - 3)).look(few, MANY, 1)
    assert (sorted(few.missing), few.expected, few.compared) == (["297", "298", "299"], MANY, MANY - 3)
    sound = Comparison("v")
    assert settler(view, range(MANY)).look(sound, 50, 1).count == sound.differences == 0 and sound.expected > 50


def test_a_sample_of_rows_is_drawn_from_the_table(settler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "sampled_ids", lambda _connection, _view, count, seed: [str(seed), str(count)])
    result = Comparison("v")
    settler(View.identity(EVENTS), [1, 2]).look(result, 2, 7)
    assert (result.missing, result.expected, result.compared) == (["7"], 3, 2)
