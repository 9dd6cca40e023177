"""Which generation a rebuild fills: one that was begun is gone on with, if it can be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import StateError
from cdc.log.ends import LogEnds
from cdc.pipeline import Pipeline, loads
from cdc.saying import Say
from operations.child_process import Apart
from operations.generations.outdated import FILLED, read_filled
from operations.rebuild.chosen import Chosen
from operations.rebuild.compared import judged
from operations.rebuild.next_one import build_next
from operations.rebuild.rebuild import Rebuild
from operations.state.folder import register_of
from operations.state.verified import note_verified
from spark.disk.made_of import define
from tests.support.begun_beside import begun_beside

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
row_store: {url: "redis://127.0.0.1:1"}
views:
  order: {root: orders, columns: [COLUMNS]}
  card: {root: orders, aggregates: {n: {table: public.orders, on: {id: id}, value: count(*)}}}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", views: [order, card]}
engine: {state_dir: STATE}
"""


class Target:
    """What is left of a generation's targets."""

    def __init__(self, there: set[str]) -> None:
        self.seen = there

    def there(self, view: str) -> bool:
        """Whether the test has put it there."""
        return view in self.seen

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def retired(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    gone: list[int] = []

    def retire(pipeline: Pipeline, sink: str, number: int, _say: Any) -> None:
        gone.append(number)
        register_of(pipeline, sink).begin_retiring(number)
        register_of(pipeline, sink).remove(number)

    for place in ("chosen", "next_one", "rebuild"):
        monkeypatch.setattr(f"operations.rebuild.{place}.retire", retire)
    yield gone


def pipeline(state: Path, columns: str = "id") -> Pipeline:
    return loads(TEXT.replace("STATE", str(state)).replace("COLUMNS", columns), "shop.yaml", {})


def entry(made: Pipeline) -> int:
    return Chosen(made, Path("shop.yaml"), "cache", lambda _line: None).to_fill().number


def begun(made: Pipeline, *flows: str) -> None:
    """A rebuild that was cut when these flows had made their targets ready."""
    register = register_of(made, "cache")
    generation = register.generation(register.create("asked for").number)
    generation.folder.mkdir(parents=True)
    define(generation, made, ["public.orders"])
    generation.note_views(["order", "card"])
    for flow in flows:
        (generation.flow_folder(flow) / "checkpoint").mkdir(parents=True)
        (generation.flow_folder(flow) / "checkpoint" / "metadata").touch()


def test_a_generation_that_is_being_filled_is_not_filled_twice(tmp_path: Path, retired: list[int]) -> None:
    """The second was told what to do about `run`, which it had nothing to do with."""
    made = pipeline(tmp_path)
    begun(made)
    lease = register_of(made, "cache").generation(2).lease
    lease.take()
    try:
        with pytest.raises(StateError, match=r"generation 2 is being filled already.*\n.*\n.*status shop\.yaml"):
            entry(made)
    finally:
        lease.release()
    assert (entry(made), retired) == (2, [])


def test_one_that_never_came_to_write_is_gone_on_with_if_the_file_says_the_same(
    tmp_path: Path, retired: list[int]
) -> None:
    begun(pipeline(tmp_path))
    assert entry(pipeline(tmp_path)) == 2 and retired == []
    # Its views are noted: a promotion would look for all of them.
    assert entry(pipeline(tmp_path, "id, n")) == 3 and retired == [2]


@pytest.mark.parametrize(("there", "number"), [({"order"}, 2), (set[str](), 3)])
def test_a_flow_that_never_made_its_target_has_not_lost_it(
    tmp_path: Path, retired: list[int], monkeypatch: pytest.MonkeyPatch, there: set[str], number: int
) -> None:
    """The joined view waits for its row store while the plain one is filled for an hour."""
    monkeypatch.setattr("operations.rebuild.chosen.open_target", lambda _config: Target(there))
    begun(pipeline(tmp_path), "main")
    assert entry(pipeline(tmp_path)) == number
    assert retired == ([] if number == 2 else [2])


@pytest.mark.parametrize(("first", "number"), [(5, 2), (6, 3)])
def test_one_whose_place_the_log_has_lost_is_begun_anew(
    tmp_path: Path, retired: list[int], monkeypatch: pytest.MonkeyPatch, first: int, number: int
) -> None:
    """`apply --wait`, then the same command, was advised: it ended at that place again and again."""
    monkeypatch.setattr(
        "operations.rebuild.chosen.committed_offsets", lambda _: (3, {"shop.public.orders": {0: 9, 1: 5}})
    )
    monkeypatch.setattr(LogEnds, "bounds", lambda *_: ({"shop.public.orders": {0: 0, 1: first}}, {}))
    begun(pipeline(tmp_path))
    assert entry(pipeline(tmp_path)) == number
    assert retired == ([] if number == 2 else [2])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(0, None)], (True, False)),
        ([(0, None), (3, False)], (False, True)),
        ([(2, True), (3, False)], (False, False)),
        ([], (True, False)),
    ],
)
def test_what_was_not_seen_to_catch_up_may_only_be_late(
    found: list[tuple[int, bool | None]], expected: tuple[bool, bool]
) -> None:
    """Under load a right generation was said to differ from Postgres, and `--repair` was advised."""
    views = [{"view": "v", "expected": 9, "differences": count, "caught_up": seen} for count, seen in found]
    said: list[str] = []
    equal = not any(count for count, _ in found)
    assert judged({"equal": equal, "sinks": [{"views": views}]}, said.append) == expected
    assert len(said) == sum(1 for count, _ in found if count)
    assert sum("may only be late" in line for line in said) == sum(seen is False for _, seen in found)


# -- what `run` builds by itself --------------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The generations that were filled, without Spark."""
    filled: list[int] = []

    def run(self: Rebuild, *, auto: bool) -> dict[str, Any]:
        entry = self.chosen.to_fill()
        filled.append(entry.number)
        return {"equal": True, "late": False, "generation": entry.number, "auto": auto}

    monkeypatch.setattr(Rebuild, "run", run)
    monkeypatch.setattr("operations.rebuild.next_one.signal.signal", lambda *_: None)
    yield filled


def ready(made: Pipeline, *, own: bool) -> None:
    """A generation that was filled of a file."""
    register = register_of(made, "cache")
    generation = register.generation(register.create("views.order.columns changed", own=own).number)
    generation.folder.mkdir(parents=True)
    define(generation, made, ["public.orders"])
    register.move(generation.number, "ready")


def test_one_that_run_has_built_from_the_file_of_before_goes(
    tmp_path: Path, retired: list[int], built: list[int]
) -> None:
    """Else every retry would say that it waits to be promoted, and the file's own would never be built."""
    said: list[str] = []
    ready(pipeline(tmp_path), own=True)
    assert build_next(said.append, pipeline(tmp_path, "id, n"), Path("shop.yaml"), "cache")
    assert retired == [2] and built == [3]
    assert "from another file (views.order.columns" in said[0] and "removed" not in said[0]
    assert register_of(pipeline(tmp_path), "cache").get(3).own


def test_one_that_a_person_has_built_stays_and_is_not_recommended(
    tmp_path: Path, retired: list[int], built: list[int]
) -> None:
    """Promoted, as the remedy once said, it would show what the file of before said."""
    ready(pipeline(tmp_path), own=False)
    with pytest.raises(StateError, match="is ready, and of another file") as caught:
        build_next(lambda _line: None, pipeline(tmp_path, "id, n"), Path("shop.yaml"), "cache")
    assert retired == [] and built == []
    assert "retire" in (caught.value.fix or "") and "promote" not in (caught.value.fix or "")


def test_one_that_is_filled_is_to_be_compared_before_it_is_promoted(tmp_path: Path) -> None:
    ready(pipeline(tmp_path), own=False)
    with pytest.raises(StateError, match="is ready and waits") as caught:
        entry(pipeline(tmp_path))
    fix = caught.value.fix or ""
    assert 0 <= fix.find("verify") < fix.find("promote") and "--generation 2" in fix


class Compared:
    """What stands for Postgres, Spark and the readers where one that is filled is compared.

    Attributes:
        differences: what each comparison finds.
        late: whether the generation was never seen to catch up.
        changed: columns that differ, by key.
        asked: who compared: `run` keeps the generation, or the rebuild does itself.
        shown: what was promoted.
        closed: engines that were closed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.differences, self.late, self.changed = 0, False, dict[str, list[str]]()
        self.asked, self.shown, self.closed = list[str](), list[int](), list[int]()
        place = "operations.rebuild.rebuild"
        monkeypatch.setattr(f"{place}.adopt", lambda *_: None)
        monkeypatch.setattr(f"{place}.source_catalogue", lambda _: None)
        monkeypatch.setattr(f"{place}.refuse_changed", lambda *_: None)
        runner = SimpleNamespace(running=())
        monkeypatch.setattr(
            f"{place}.open_rebuild", lambda *given: SimpleNamespace(runner=runner, close=lambda: self.close(given[3]))
        )
        monkeypatch.setattr(f"{place}.compare", lambda *given: self.found("run", given[1], given[3]))
        monkeypatch.setattr(Rebuild, "_proven", lambda *given: self.found("rebuild", given[0].pipeline, given[2]))
        monkeypatch.setattr(f"{place}.promote", lambda *given: self.shown.append(given[2]))
        monkeypatch.setattr("operations.rebuild.next_one.signal.signal", lambda *_: None)

    def found(self, who: str, made: Pipeline, number: int) -> dict[str, Any]:
        """The shape of `verify --json`, as far as it is looked at; noted as `verify` does."""
        self.asked.append(who)
        view = {"view": "order", "differences": self.differences, "expected": 9, "caught_up": not self.late}
        keys = {"missing": [""], "extra": [], "changed": [*self.changed], "columns": self.changed, "not_repaired": []}
        sink = {"sink": "cache", "generation": number, "error": None, "views": [view | keys]}
        report = {"at": 1.0, "equal": not self.differences, "sample": None, "sinks": [sink]}
        note_verified(made, report)
        return report

    def close(self, number: int) -> None:
        """An engine ends."""
        self.closed.append(number)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    return Compared(monkeypatch)


@pytest.mark.parametrize("differences", [0, 3])
@pytest.mark.parametrize("kept", [True, False])
def test_one_whose_comparison_was_killed_is_compared_by_the_same_command(
    tmp_path: Path, compared: Compared, differences: int, kept: bool
) -> None:
    """`rebuild --auto`, killed while it compared and given again, was refused: "ready and waits to be promoted".

    Where no `run` keeps it up to date the rebuild does: under a writer it would only ever be late.
    """
    made = pipeline(tmp_path)
    ready(made, own=False)
    generation = register_of(made, "cache").generation(2)
    generation.folder.joinpath(FILLED).write_text('{"records": 9, "seconds": 1.5}')
    compared.differences = differences
    lease = generation.lease
    if kept:
        lease.take()
    try:
        rebuild = Rebuild(Chosen(made, Path("shop.yaml"), "cache", lambda _line: None), 1.0, threading.Event())
        report = rebuild.run(auto=True)
    finally:
        if kept:
            lease.release()
    assert compared.asked == ["run" if kept else "rebuild"] and compared.closed == ([] if kept else [2])
    assert compared.shown == ([] if differences else [2])
    assert (report["equal"], report["late"], report["generation"], report["records"]) == (not differences, False, 2, 9)


@pytest.mark.parametrize("cut", [False, True])
def test_only_who_filled_all_of_it_notes_how_fast_that_was(
    tmp_path: Path, compared: Compared, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """Killed near its end and given again it noted the few records of the last seconds, those of Spark's start among
    them, and `plan` told thousands of minutes for the next one."""
    made = pipeline(tmp_path)
    if cut:
        begun(made, "main")
        monkeypatch.setattr("operations.rebuild.chosen.open_target", lambda _config: Target({"order"}))
    monkeypatch.setattr(Rebuild, "_fill", lambda *_: 9)
    rebuild = Rebuild(Chosen(made, Path("shop.yaml"), "cache", lambda _line: None), 1.0, threading.Event())
    report = rebuild.run(auto=False)
    assert (report["generation"], report["stage"], report["records"]) == (2, "ready", 9)
    filled = read_filled(register_of(made, "cache").generation(2))
    assert filled is None if cut else filled is not None and filled[0] == 9


def brief(say: Say, *_given: Any) -> dict[str, Any]:
    """A comparison that has ended when it is looked at for the first time."""
    say("cache: 9 rows compared, 3 differ")
    return {"equal": False, "sinks": []}


def test_what_a_comparison_says_last_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = list[Apart[Any]]()

    class Seen(Apart[Any]):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            proofs.append(self)

    monkeypatch.setattr("operations.rebuild.rebuild.compare", brief)
    monkeypatch.setattr("operations.rebuild.rebuild.Apart", Seen)
    made, told = pipeline(tmp_path), list[str]()
    ready(made, own=False)
    rebuild = Rebuild(Chosen(made, Path("shop.yaml"), "cache", told.append), 1.0, threading.Event())
    runner = SimpleNamespace(step=lambda: proofs[0].ended(60.0), doubting=False)
    assert not rebuild._proven(SimpleNamespace(runner=runner), 2)["equal"]  # type: ignore[arg-type]
    assert told == ["verifying generation 2", "cache: 9 rows compared, 3 differ"]


def test_what_may_only_be_late_is_no_error(tmp_path: Path, compared: Compared, retired: list[int]) -> None:
    ready(pipeline(tmp_path), own=True)
    compared.differences, compared.late = 3, True
    assert not build_next(lambda _line: None, pipeline(tmp_path), Path("shop.yaml"), "cache")
    assert retired == [] and compared.asked == ["rebuild"]


def test_one_that_differs_stays_and_is_compared_until_it_is_equal(
    tmp_path: Path, compared: Compared, retired: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log holds otherwise than Postgres, or a sink never takes, each generation has: it was removed after two
    comparisons and another one filled from the log's beginning, and nobody was told which rows or columns it was."""
    made, compared.differences, compared.changed = pipeline(tmp_path), 3, {"7": ["at", "a", "b", "c"]}
    filled: list[int] = []

    def fill(self: Rebuild, _engine: Any, number: int) -> int:
        generation = self.registry.generation(number)
        generation.folder.mkdir(parents=True)
        define(generation, made, ["public.orders"])
        filled.append(number)
        return 9

    monkeypatch.setattr(Rebuild, "_fill", fill)
    build = partial(build_next, lambda _line: None, made, Path("shop.yaml"), "cache")
    for _ in range(3):
        with pytest.raises(StateError) as told:
            build()
        assert '2 differs from Postgres (order: "" (missing), 7 (at, a, b, …) and 1 more)' in told.value.what
        assert "letters shop.yaml list --sink cache --generation 2" in (told.value.fix or "")
        assert "an UPDATE of the row" in (told.value.fix or "")
    assert (filled, retired) == ([2], []) and [one.number for one in register_of(made, "cache").entries()] == [1, 2]
    compared.differences = 0  # the row was mended
    assert build() and compared.shown == [2]


@pytest.mark.parametrize("again", [True, False])
def test_one_that_a_person_has_built_or_that_is_not_tried_again_stays(
    tmp_path: Path, compared: Compared, retired: list[int], again: bool
) -> None:
    """Hours of filling went, and the message said to repair it."""
    ready(pipeline(tmp_path), own=not again)
    compared.differences = 3
    with pytest.raises(StateError, match="2 differs from Postgres") if again else nullcontext():
        assert not build_next(lambda _line: None, pipeline(tmp_path), Path("shop.yaml"), "cache", again=again)
    assert retired == []


def test_one_that_is_being_removed_is_filled_no_further(tmp_path: Path) -> None:
    """Who removes it waited for its lease for a minute, and gave up; the fill went on to its end for nothing."""
    made = pipeline(tmp_path)
    begun(made)
    rebuild = Rebuild(Chosen(made, Path("shop.yaml"), "cache", lambda _line: None), 1.0, threading.Event())
    rebuild._refuse_retired(2)
    register_of(made, "cache").begin_retiring(2)
    with pytest.raises(
        StateError, match=r"is being removed while it is filled.*\n.*\n.*rebuild shop\.yaml cache` fills"
    ):
        rebuild._refuse_retired(2)


@pytest.mark.parametrize("other", ["filling", "ready"])
def test_one_that_another_process_begins_meanwhile_is_not_begun_twice(
    tmp_path: Path, retired: list[int], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Both had looked, and each filled one of its own: hours of work and twice the space."""
    made, looked, what_for = pipeline(tmp_path), list[str](), Chosen._what_for

    def meanwhile(self: Chosen) -> str:
        if not looked:
            looked.append("once")
            begun(made)
            if other == "ready":
                self.registry.move(2, "ready")
            else:
                self.registry.generation(2).lock()
        return what_for(self)

    monkeypatch.setattr(Chosen, "_what_for", meanwhile)
    told = "is being filled already, by process" if other == "filling" else "is ready and waits to be promoted"
    with pytest.raises(StateError, match=f"generation 2 {told}"):
        entry(made)
    register = register_of(made, "cache")
    assert [one.number for one in register.entries()] == [1, 2] and retired == []
    register.generation(2).lease.release()


def test_what_two_have_begun_is_gone_on_with_or_given_up_one_after_the_other(
    tmp_path: Path, retired: list[int]
) -> None:
    """As an older Headwater has left it."""
    made = pipeline(tmp_path, "id, n")
    begun(pipeline(tmp_path))
    register = register_of(made, "cache")
    generation = register.generation(begun_beside(register).number)
    generation.folder.mkdir()
    define(generation, pipeline(tmp_path), ["public.orders"])
    generation.note_views(["order", "card"])
    assert entry(made) == 4 and retired == [3, 2]


def test_one_that_was_removed_before_it_was_opened_is_not_filled(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    begun(made)
    rebuild = Rebuild(Chosen(made, Path("shop.yaml"), "cache", lambda _line: None), 1.0, threading.Event())
    register_of(made, "cache").remove(2)
    with pytest.raises(StateError, match=r"generation 2 was removed\n"):
        rebuild._refuse_retired(2)


def test_what_a_person_goes_on_with_is_that_persons(tmp_path: Path, retired: list[int]) -> None:
    begun(pipeline(tmp_path))
    register = register_of(pipeline(tmp_path), "cache")
    assert entry(pipeline(tmp_path)) == 2 and not register.get(2).own
    register.remove(2)
    assert register.create("views changed", own=True).own
    assert entry(pipeline(tmp_path)) == 3 and not register.get(3).own and retired == []


def test_one_that_is_being_filled_is_left_to_its_builder(tmp_path: Path, retired: list[int]) -> None:
    """It was once said to be removed, and its stage taken from it, while its process went on."""
    begun(pipeline(tmp_path))
    lease = register_of(pipeline(tmp_path), "cache").generation(2).lease
    lease.take()
    try:
        with pytest.raises(StateError, match=r"generation 2 was begun from another file .* and is being filled"):
            entry(pipeline(tmp_path, "id, n"))
    finally:
        lease.release()
    assert retired == [] and register_of(pipeline(tmp_path), "cache").get(2).stage == "filling"


def test_a_removal_that_was_cut_is_ended_by_the_next_build(
    tmp_path: Path, retired: list[int], built: list[int]
) -> None:
    ready(pipeline(tmp_path), own=True)
    register_of(pipeline(tmp_path), "cache").begin_retiring(2)
    assert build_next(lambda _line: None, pipeline(tmp_path), Path("shop.yaml"), "cache")
    assert retired == [2] and built == [3]


@pytest.mark.parametrize(("bounds", "number"), [((0, 9), 2), ((6, 9), 3), ((0, 4), 3)])
def test_one_whose_place_the_log_has_lost_is_not_gone_on_with(
    tmp_path: Path, retired: list[int], monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int], number: int
) -> None:
    """It ended at that place again and again; in a log that has become shorter it would skip what comes there."""
    made = pipeline(tmp_path)
    begun(made, "main")
    checkpoint = register_of(made, "cache").generation(2).checkpoint("main")
    for name, text in (("offsets", 'v1\n{}\n{"t": {"0": 5}}'), ("commits", "v1\n{}")):
        (checkpoint / name).mkdir()
        (checkpoint / name / "0").write_text(text)
    first, end = bounds
    monkeypatch.setattr(Chosen, "of_other_log", lambda *_: False)
    monkeypatch.setattr(LogEnds, "bounds", lambda _self, topics: ({"t": {0: first}}, {"t": {0: end}}))
    assert entry(made) == number
    if number == 2:
        register_of(made, "cache").generation(2).flow_folder("main").joinpath("shorter.json").write_text("{}")
        assert entry(made) == 3, "the log has been shorter once"
