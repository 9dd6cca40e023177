"""Who moves readers of one view while somebody else moves those of all: nobody is left behind, or taken back alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import SinkUnavailable, StateError
from cdc.pipeline import Pipeline, loads
from operations.generations import promote as promoting
from operations.generations.promote import promote
from operations.schema.steps import show
from operations.state.folder import register_of
from spark.disk.register import Register
from spark.disk.state import Generation
from tests.support.lone_cache import FILE
from tests.support.promoted import promoted


class Target:
    """What readers see of each view; something happens while one is moved, or looked for."""

    def __init__(self, seen: dict[str, int], number: int, meanwhile: dict[str, Callable[[], None]]) -> None:
        self.seen, self.number, self.meanwhile = seen, number, meanwhile

    def living(self, view: str) -> int | None:
        return self.seen.get(view)

    def there(self, view: str) -> bool:
        self.meanwhile.pop("there", lambda: None)()
        return True

    def promote(self, view: str, old: int) -> None:
        self.meanwhile.pop(view, lambda: None)()
        assert self.seen.get(view, old) == old
        self.seen[view] = self.number

    def close(self) -> None: ...


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = loads(FILE.format(folder=tmp_path), "shop.yaml", {})
    register_of(made, "cache").create("x")
    register_of(made, "cache").move(2, "ready")
    return made


def given(monkeypatch: pytest.MonkeyPatch, target: Target) -> None:
    monkeypatch.setattr(promoting, "open_target", lambda _config: target)
    monkeypatch.setattr("sinks.factory.open_target", lambda _config: target)
    monkeypatch.setattr(promoting, "_level", lambda *_: None)
    monkeypatch.setattr(promoting, "_refuse_stateless", lambda *_: None)
    monkeypatch.setattr(Generation, "views", lambda _self: ["v", "w"])


def ends_and_goes_back(register: Register, seen: dict[str, int]) -> None:
    """`run` ends the promotion, and somebody takes readers back."""
    promoted(register, 2)
    promoted(register, 1)
    seen.update(v=1, w=1)


def test_a_view_that_was_moved_by_who_slept_is_taken_back(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    register, seen = register_of(pipeline, "cache"), {"v": 1, "w": 1}
    given(monkeypatch, Target(seen, 2, {"v": lambda: ends_and_goes_back(register, seen)}))
    with pytest.raises(StateError, match="was given up, or ended, by somebody else"):
        promote(pipeline, "cache", 2, print)
    assert seen == {"v": 2, "w": 1}
    begun = register.promotion()
    assert begun is not None and (begun.number, begun.origin, begun.moving) == (1, 2, True)  # `run` ends it
    assert register.cut_promotion(-1.0) == 1
    target = Target(seen, 1, {})
    given(monkeypatch, target)
    promote(pipeline, "cache", 1, print)
    assert (seen, register.living(), register.promotion()) == ({"v": 1, "w": 1}, 1, None)


def test_who_wakes_up_when_another_has_ended_it_has_done_no_harm(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, seen = register_of(pipeline, "cache"), {"v": 1, "w": 1}
    given(monkeypatch, Target(seen, 2, {"w": lambda: register.promote(2)}))
    assert promote(pipeline, "cache", 2, print)["generation"] == 2
    assert (seen, register.living(), register.promotion()) == ({"v": 2, "w": 2}, 2, None)


@pytest.mark.parametrize("when", ["there", "t"])
def test_readers_of_a_new_table_stay_with_the_others(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Sent to the next generation while the living one's flow made the table's target."""
    register, seen = register_of(pipeline, "cache"), dict[str, int]()

    def all_of_them() -> None:
        promoted(register, 2)
        if when == "there":
            seen["t"] = 2

    given(monkeypatch, Target(seen, 1, {when: all_of_them}))
    with pytest.raises(SinkUnavailable, match="sent to another generation"):
        show(print, pipeline, "cache", 1, "t")
    given(monkeypatch, Target(seen, 2, {}))
    show(print, pipeline, "cache", register.living(), "t")  # as it is tried again
    assert seen == {"t": 2}


def test_nobody_is_shown_a_new_table_in_the_middle_of_a_promotion(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, seen, said = register_of(pipeline, "cache"), dict[str, int](), list[Any]()
    register.begin_promotion(2, 1)
    given(monkeypatch, Target(seen, 1, {}))
    with pytest.raises(SinkUnavailable):
        show(said.append, pipeline, "cache", 1, "t")
    assert seen == {}
    register.give_up_promotion(2)
    show(said.append, pipeline, "cache", 1, "t")
    assert seen == {"t": 1} and said == ["readers of cache see t"]
