"""When a cache that forgot is made again, how often, and by what: the processes are real, what they do is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import SinkUnavailable
from cdc.pipeline import Pipeline, loads
from cdc.polling import poll
from operations.child_process import Apart
from operations.losses import losses as module
from operations.losses.loss_watch import LossWatch
from operations.losses.losses import Losses, next_step
from operations.losses.steps import LOST
from operations.state.folder import register_of
from operations.status.alive import ailments
from operations.status.facts import judged
from operations.status.sinks import _sink
from spark.failures import explain
from tests.support.losing import engine_of
from tests.support.promoted import promoted
from tests.support.steps import begin_and_fail, compare, fail, wait, work

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views: {order: {root: orders}}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", view: order}
  kept: {type: redis, url: "redis://127.0.0.1:1", view: order, on_loss: refuse, key_prefix: "k:"}
  search: {type: elasticsearch, url: "http://127.0.0.1:1", view: order}
engine: {state_dir: STATE}
"""


@pytest.mark.parametrize(
    ("living", "ready", "then"),
    [
        (True, False, "remove"),
        (True, True, "remove"),  # somebody else has promoted
        (False, True, "promote"),
        (False, False, "again"),
    ],
)
def test_what_comes_after_a_child(living: bool, ready: bool, then: str) -> None:
    assert next_step(living_is_there=living, ready=ready) == then


# -- noticing ---------------------------------------------------------------------------------------------------------


class Server:
    """What a cache's server holds of the claims and beats, without the server."""

    def __init__(self) -> None:
        self.beats: dict[int, int] = {}
        self.away = False

    def sink(self, config: Any) -> Any:
        (target,) = config["targets"].values()
        generation = target["generation"]

        class Sink(module_redis()):  # type: ignore[misc]
            def __init__(self) -> None: ...
            def close(self) -> None: ...

            def beat(_self, _view: str, number: int, before: int = 0) -> int | None:
                if self.away:
                    raise SinkUnavailable("away")
                held = self.beats.get(generation)
                if held is not None and held >= before:
                    self.beats[generation] = max(held, number)
                return held

        return Sink()


def module_redis() -> type:
    from sinks.redis import RedisSink

    return RedisSink


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    for sink in made.sinks:
        register_of(made, sink).generation(1).note_views(["order"])
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr("operations.losses.loss_watch.open_target", made.sink)
    return made


def failed(pipeline: Pipeline, sink: str, generation: int, *, wrote: bool = True, halted: bool = False) -> Any:
    spec = SimpleNamespace(sink=sink, generation=generation, views={"order": None})
    folder = register_of(pipeline, "cache").generation(generation).flow_folder(f"{sink}-{wrote}")
    folder.mkdir(parents=True, exist_ok=True)
    if wrote:
        (folder / "fill.json").touch()
    return SimpleNamespace(flow=SimpleNamespace(spec=spec, folder=folder), failed=True, halted=halted)


@pytest.fixture
def watch(pipeline: Pipeline) -> Iterator[LossWatch]:
    made = LossWatch(pipeline, ["cache"], seconds=3600)
    made.follow([("cache", 1), ("kept", 1)], [])
    yield made
    made.close()


def test_a_folder_that_takes_no_note_is_told_once(
    pipeline: Pipeline, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server.beats[1] = 0
    tries = []

    def refused(_self: object, beats: object) -> None:
        tries.append(beats)
        raise OSError(30, "Read-only file system", "beats.json")

    monkeypatch.setattr("spark.disk.state.Generation.note_beats", refused)
    watch = LossWatch(pipeline, ["cache"], seconds=0.01)
    watch.follow([("cache", 1)], [])
    assert poll(lambda: len(tries), lambda count: count > 3, 10, 0.05) > 3
    watch.close()
    said = [record for record in caplog.records if record.name == "operations.losses.loss_watch"]
    assert [(one.levelname, one.exc_info) for one in said] == [("WARNING", None)]
    assert "Read-only" in said[0].getMessage()


def test_a_flow_that_stands_still_because_of_a_table_is_no_suspect(
    pipeline: Pipeline, watch: LossWatch, server: Server
) -> None:
    """A cache of all tables took up a new one meanwhile, whose target nobody had made; all of it was made again."""
    watch.follow([("cache", 1)], [failed(pipeline, "cache", 1, halted=True)])
    watch.look()
    assert watch.lost("cache") == []
    watch.follow([("cache", 1)], [failed(pipeline, "cache", 1)])
    watch.look()
    assert watch.lost("cache") == [1]


def test_what_was_there_and_is_not_is_lost(watch: LossWatch, server: Server) -> None:
    watch.look()
    assert watch.lost("cache") == []  # it may not have been set up yet
    server.beats[1] = 0
    watch.look()
    assert watch.lost("cache") == []
    server.away = True
    server.beats.clear()
    watch.look()
    assert watch.lost("cache") == []  # nobody answers: nothing is known
    server.away = False
    watch.look()
    assert watch.lost("cache") == [1]
    server.beats[1] = 0  # set up again by somebody: that brings no document back
    watch.look()
    assert watch.lost("cache") == [1]


def test_a_server_restored_from_an_older_state_has_lost_what_came_after(watch: LossWatch, server: Server) -> None:
    server.beats[1] = 0
    watch.look()
    older = server.beats[1]
    time.sleep(0.002)
    watch.look()
    server.beats[1] = older
    watch.look()
    assert watch.lost("cache") == [1]


def test_what_another_process_holds_is_for_that_to_look_at(watch: LossWatch, server: Server) -> None:
    server.beats[1] = 0
    watch.look()
    watch.follow([], [])
    server.beats.clear()
    watch.look()
    assert watch.lost("cache") == []


@pytest.mark.usefixtures("server")
def test_what_a_start_finds_missing_is_lost_too(pipeline: Pipeline, watch: LossWatch) -> None:
    """It was never seen by this process, but its flow knows that it has written to it."""
    watch.follow([("cache", 1)], [failed(pipeline, "cache", 1), failed(pipeline, "other", 1)])
    assert watch.pending  # `run` must not end before it has been seen why its last flow has failed
    watch.look()
    assert not watch.pending
    assert watch.lost("cache") == [1] and watch.lost("other") == []
    assert watch.gone("cache", 1)


@pytest.mark.usefixtures("server")
def test_what_was_never_made_ready_is_not_lost(pipeline: Pipeline, watch: LossWatch) -> None:
    """A flow that is refused before it writes, because its row store may evict keys, say."""
    watch.follow([("cache", 1)], [failed(pipeline, "cache", 1, wrote=False)])
    watch.look()
    assert not watch.pending and watch.lost("cache") == []


def test_a_loss_is_not_forgotten_with_the_process_that_saw_it(pipeline: Pipeline, server: Server) -> None:
    def another() -> list[int]:
        made = LossWatch(pipeline, ["cache"], seconds=3600)
        made.follow([("cache", 1)], [])
        made.look()
        made.close()
        return made.lost("cache")

    server.beats[1] = 0
    assert another() == []
    older = server.beats[1]
    time.sleep(0.002)
    assert another() == []
    server.beats[1] = older  # restored, while a process was there or none
    assert another() == [1]
    assert another() == [1]
    del server.beats[1]
    assert another() == [1]


# -- making it again --------------------------------------------------------------------------------------------------


FILLS = (work, "cache@2/main: 43% of the log")
FAILS = (fail,)
Steps = Callable[[str], tuple[Any, ...]]


def steps(*rebuild: Any, verify: tuple[Any, ...] = (compare, True)) -> Steps:
    """What a step is in the place of, by its name."""
    return lambda name: {"rebuild": rebuild or FILLS, "verify": verify}.get(name, (work, "done"))


class Case:
    """`run`'s loop around the losses of one sink; what a step does is a small function, in a process."""

    def __init__(self, pipeline: Pipeline, server: Server, does: Steps) -> None:
        self.pipeline, self.server, self.said = pipeline, server, list[str]()
        self.asked: list[tuple[Any, ...]] = []
        self.stopped: list[Path] = []
        self.engine = engine_of(self.pipeline, self.stopped)

        def start(step: Callable[..., Any], *arguments: Any) -> Apart[Any]:
            # What `run` goes by, whatever has become of the file since.
            assert arguments[:2] == (self.losses.pipeline, Path("shop.yaml"))
            self.asked.append((step.__name__, *arguments[2:]))
            return Apart(*does(step.__name__))

        self.losses = Losses(pipeline, Path("shop.yaml"), start=start)
        server.beats[1] = 0
        self.losses.watch.follow([("cache", 1)], [])
        self.losses.watch.look()

    def until(self, good: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not good():
            assert time.monotonic() < end, self.said
            self.said += self.losses.step(self.engine)
            time.sleep(0.01)

    def lose(self) -> None:
        self.server.beats.clear()
        self.losses.watch.look()

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, *_ in self.asked]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(module, "NOTE_SECONDS", 0.0)


@pytest.fixture
def cases() -> Iterator[list[Case]]:
    made: list[Case] = []
    yield made
    for case in made:
        case.losses.close()


def filled(case: Case, stage: Any) -> None:
    """As a rebuild leaves the register and the server."""
    register = register_of(case.pipeline, "cache")
    number = register.create("lost").number
    register.generation(number).note_views(["order"])
    case.server.beats[number] = 0
    register.move(number, "ready")
    if stage == "living":
        promoted(register, number)


def test_only_sinks_that_say_so_are_made_again(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, steps()))
    assert case.losses.sinks == ["cache"]


@pytest.mark.usefixtures("quick")
def test_from_the_loss_to_the_end(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, steps()))
    alone: list[tuple[str, int]] = []
    case.losses.let_go = lambda sink: alone.append((sink, len(case.asked)))
    case.lose()
    case.until(lambda: bool(case.asked))
    assert case.asked[0] == ("rebuild", "cache", None, LOST)
    assert alone == [("cache", 0)]  # another builder of it has ended before
    assert case.stopped == [register_of(pipeline, "cache").generation(1).folder] * 2 and case.losses.busy
    status = _sink(pipeline, "cache", None)
    assert status["state"] == "rebuilding" and status["rebuilding"]["attempt"] == 1
    assert not [line for line in ailments(pipeline) if line.startswith("cache")]
    filled(case, "living")
    case.until(lambda: case.verbs == ["rebuild", "retire"])
    assert case.asked[1] == ("retire", "cache", 1)
    assert case.losses.healing["cache"].progress == "readers see it; what was lost is removed"
    register_of(pipeline, "cache").remove(1)
    case.until(lambda: case.verbs == ["rebuild", "retire", "verify"])
    assert case.asked[2] == ("verify", "cache", 2)
    assert _sink(pipeline, "cache", None)["rebuilding"] is None  # readers have what they need; it is only looked at
    case.until(lambda: not case.losses.busy)
    assert case.said[-1] == "sink cache: what was made again equals Postgres"
    assert any("43% of the log" in line for line in case.said)
    assert _sink(pipeline, "cache", None)["rebuilding"] is None
    case.server.beats.clear()  # and it may forget again
    case.losses.watch.look()
    case.until(lambda: case.losses.busy)


def test_what_somebody_else_has_made_meanwhile_is_not_waited_for(
    pipeline: Pipeline, server: Server, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` builds what an applied file says, and a sink has one builder: readers saw the new generation for up to two
    minutes, and `status` told of the loss."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 100.0)
    cases.append(case := Case(pipeline, server, steps(*FAILS)))
    case.lose()
    case.until(lambda: any("again in 100 s" in line for line in case.said))
    filled(case, "living")
    case.until(lambda: case.verbs == ["rebuild", "retire"])


@pytest.mark.usefixtures("quick")
def test_a_failure_is_tried_again_and_its_reason_is_told(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, steps(*FAILS)))
    case.lose()
    case.until(lambda: len(case.asked) >= 4)
    assert set(case.verbs) == {"rebuild"}
    assert _sink(pipeline, "cache", None)["rebuilding"]["error"] == "flow failed: because"


@pytest.mark.usefixtures("quick")
def test_a_cache_that_could_not_be_made_again_alarms_and_is_not_told_as_if_it_went_on(
    pipeline: Pipeline, server: Server, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was `filling` for ever, with the last line of an attempt that had come to nothing."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 100.0)
    cases.append(case := Case(pipeline, server, steps(begin_and_fail)))
    case.lose()
    case.until(lambda: any("again in 100 s" in line for line in case.said))
    assert any("43% of the log" in line for line in case.said)
    case.until(lambda: _sink(pipeline, "cache", None)["rebuilding"]["error"] is not None)
    assert _sink(pipeline, "cache", None)["rebuilding"]["progress"] == ""
    told = judged(pipeline, ["cache"]).sinks["cache"].judged
    assert told.bad and told.judgement == "retrying" and "flow failed: because" in (told.cause or "")
    assert not [line for line in ailments(pipeline) if line.startswith("cache")]  # a new process would not help


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("equal", "told"),
    [(True, "equals Postgres"), (False, "differs from Postgres"), (None, "could not be compared (no Postgres)")],
)
def test_what_is_complete_is_promoted_and_then_compared(
    pipeline: Pipeline, server: Server, cases: list[Case], equal: bool | None, told: str
) -> None:
    """Readers have nothing meanwhile, so the comparison does not keep them waiting; its result is told."""
    cases.append(case := Case(pipeline, server, steps(verify=(compare, equal))))
    case.lose()
    case.until(lambda: bool(case.asked))
    filled(case, "ready")
    case.until(lambda: "promote" in case.verbs)
    assert case.asked[1] == ("promote", "cache", 2)
    promoted(register_of(pipeline, "cache"), 2)
    case.until(lambda: "retire" in case.verbs)
    register_of(pipeline, "cache").remove(1)
    case.until(lambda: not case.losses.busy)
    assert case.verbs == ["rebuild", "promote", "retire", "verify"] and told in case.said[-1]
    assert ("--repair" in case.said[-1]) == (equal is False)


@pytest.mark.usefixtures("quick")
def test_what_is_ready_and_lost_as_well_is_out_of_the_way(
    pipeline: Pipeline, server: Server, cases: list[Case]
) -> None:
    """Restored from before both: it is there, and lacks what came after."""
    cases.append(case := Case(pipeline, server, steps(*FAILS)))
    filled(case, "ready")
    case.losses.watch.follow([("cache", 1), ("cache", 2)], [])
    case.losses.watch.look()
    case.server.beats.update({1: 0, 2: 0})
    case.losses.watch.look()
    case.until(lambda: case.verbs[:2] == ["rebuild", "retire"])
    assert case.asked[1] == ("retire", "cache", 2)


@pytest.mark.usefixtures("quick")
def test_a_loss_while_it_is_compared_begins_anew(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, steps(verify=(wait,))))
    case.lose()
    case.until(lambda: bool(case.asked))
    filled(case, "living")
    case.until(lambda: "retire" in case.verbs)
    register_of(pipeline, "cache").remove(1)
    case.until(lambda: "verify" in case.verbs)
    case.server.beats.clear()
    case.losses.watch.look()
    case.until(lambda: case.verbs[-1] == "rebuild")
    assert case.verbs == ["rebuild", "retire", "verify", "rebuild"]


# -- with on_loss: refuse ---------------------------------------------------------------------------------------------


class Refused:
    """`run`'s loop around a sink that is not made again by itself."""

    def __init__(self, pipeline: Pipeline, *flows: str) -> None:
        self.pipeline = pipeline
        self.generation = register_of(pipeline, "kept").generation(1)
        self.losses = Losses(pipeline, Path("shop.yaml"))
        runner = SimpleNamespace(running=[self.flow(name) for name in flows], fail=self.fail)
        builds = [SimpleNamespace(sink="kept", generation=self.generation)]
        self.engine: Any = SimpleNamespace(paused={}, runner=runner, builds=builds)

    def flow(self, name: str) -> Any:
        spec = SimpleNamespace(sink="kept", generation=1, views={"order": None})
        flow = SimpleNamespace(spec=spec, folder=self.generation.flow_folder(name))
        return SimpleNamespace(flow=flow, failed=False, halted=False, taken=False, last_error=None)

    def fail(self, folder: Path, reason: str) -> None:
        assert folder == self.generation.folder
        for run in self.engine.runner.running:
            run.failed, run.last_error = True, reason

    def look(self) -> list[str]:
        """A step, a look, and what the next step says."""
        assert self.losses.step(self.engine) == []
        time.sleep(0.002)
        self.losses.watch.look()
        return self.losses.step(self.engine)

    @property
    def reasons(self) -> list[str | None]:
        return [run.last_error for run in self.engine.runner.running]


@pytest.fixture
def refused(pipeline: Pipeline, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refused]:
    monkeypatch.setattr("operations.losses.loss_watch.CHECK_SECONDS", 3600.0)
    server.beats[1] = 0  # claimed, and never looked at before: as an older Headwater has left it
    made = Refused(pipeline, "main", "card")
    yield made
    made.losses.close()


@pytest.mark.parametrize("restored", [True, False])
def test_fault_37_a_cache_that_is_to_refuse_fails_when_it_has_forgotten(
    refused: Refused, server: Server, restored: bool
) -> None:
    """Nobody looked at it: its flows ran on, well, without what an older `dump.rdb` lacks, and a flushed one stayed
    well for as long as nothing was written."""
    assert refused.look() == [] and refused.reasons == [None, None]
    older = server.beats[1]
    assert older and refused.generation.beats() == {"order": older}  # also who asks for freshness goes by it
    assert refused.look() == []
    if restored:
        server.beats[1] = older
    else:
        server.beats.clear()
    [said] = refused.look()
    assert said.startswith("warning: sink kept: its server has lost what generation 1 had written")
    [reason] = set(refused.reasons)
    assert "`headwater rebuild FILE kept --auto` makes them again" in str(reason)
    assert refused.look() == [] and not refused.losses.healing
    refused.engine.runner.running[0] = refused.flow("main")  # opened anew, for a table that was altered
    server.beats.setdefault(1, 0)  # which claims it
    assert len(refused.losses.step(refused.engine)) == 1
    assert set(refused.reasons) == {reason}


def test_fault_37_a_loss_is_refused_also_by_the_next_run(pipeline: Pipeline, refused: Refused, server: Server) -> None:
    refused.look()
    refused.look()
    refused.losses.close()
    server.beats[1] = 0  # emptied while no `run` was there; the start of a flow has claimed it
    after = Refused(pipeline, "main")
    try:
        assert len(after.look()) == 1 and after.engine.runner.running[0].failed
    finally:
        after.losses.close()


def test_what_is_paused_or_somebody_elses_is_not_refused(refused: Refused, server: Server) -> None:
    refused.look()
    server.beats.clear()
    refused.engine.builds.clear()  # paused, retired or taken over
    for run in refused.engine.runner.running:
        run.taken, run.failed, run.last_error = True, True, "another process"
    assert refused.look() == [] and set(refused.reasons) == {"another process"}
    refused.losses.watch._lost = frozenset({("kept", 1, "order")})  # until the next look
    assert refused.losses._refuse(refused.engine, "kept") == []


def test_a_file_that_is_applied_says_what_is_done_from_then_on(
    pipeline: Pipeline, refused: Refused, tmp_path: Path
) -> None:
    assert (refused.losses.sinks, refused.losses.watch.sinks) == (["cache"], ["cache", "kept"])
    other = loads(TEXT.replace("STATE", str(tmp_path)).replace(", on_loss: refuse", ""), "shop.yaml", {})
    refused.losses.adopt(other, ["kept"])
    assert (refused.losses.sinks, refused.losses.watch.sinks) == (["kept"], ["kept"])


def test_a_reason_that_comes_through_spark_keeps_its_way_out() -> None:
    text = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in f
cdc.errors.SinkRefused: sink 'cache': the key shop:order@live has lost generation 2
  what it means: documents would be missing
  what to do: `headwater rebuild FILE cache --auto` makes them again

\tat org.apache.spark.api.python.BasePythonRunner"""
    assert explain(text).splitlines()[1:] == [
        "  what it means: documents would be missing",
        "  what to do: `headwater rebuild FILE cache --auto` makes them again",
    ]


def test_a_flow_of_a_lost_generation_says_what_makes_it_again_also_when_nobody_does(pipeline: Pipeline) -> None:
    """Its status outlives `run`: "a new one is being made" was shown beside "its process is gone"."""
    said: list[str] = []
    losses = Losses(pipeline, Path("shop.yaml"))
    losses.watch.lost = lambda _sink: [1]  # type: ignore[method-assign, assignment]
    runner = SimpleNamespace(fail=lambda _folder, reason: said.append(reason))
    losses._stop_lost(SimpleNamespace(runner=runner), "cache")  # type: ignore[arg-type]
    losses.close()
    assert len(said) == 1 and "being made" not in said[0]
    assert "what to do: `headwater run FILE` makes it" in said[0]
