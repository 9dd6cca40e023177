"""When a cache that forgot is made again, how often, and by what: children are real processes, their verbs are not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from cdc.errors import SinkUnavailable
from cdc.pipeline import Pipeline, loads
from operations.run import losses as module
from operations.run.child import Child
from operations.run.loss_watch import LossWatch
from operations.run.losses import LONGEST_PAUSE, Losses, next_step, pause_after
from operations.state_folder import register_of
from operations.status.alive import ailments
from operations.status.sinks import _sink
from spark.runner import explain

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


def test_pauses_are_bounded() -> None:
    pauses = [pause_after(attempt) for attempt in range(1, 2000)]
    assert pauses == sorted(pauses) and pauses[0] == 2 and pauses[-1] == LONGEST_PAUSE


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

            def beat(_self, _view: str, number: int) -> int | None:
                if self.away:
                    raise SinkUnavailable("away")
                held = self.beats.get(generation)
                if held is not None:
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
    monkeypatch.setattr("operations.run.loss_watch.open_target", made.sink)
    return made


def failed(sink: str, generation: int) -> Any:
    spec = SimpleNamespace(sink=sink, generation=generation, views={"order": None})
    return SimpleNamespace(flow=SimpleNamespace(spec=spec), failed=True)


@pytest.fixture
def watch(pipeline: Pipeline) -> Iterator[LossWatch]:
    made = LossWatch(pipeline, ["cache"], seconds=3600)
    made.follow([("cache", 1), ("kept", 1)], [])
    yield made
    made.close()


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


def test_what_a_start_finds_missing_is_lost_too(watch: LossWatch, server: Server) -> None:
    """It was never seen by this process, but its flow knows that it has written to it."""
    watch.follow([("cache", 1)], [failed("cache", 1), failed("other", 1)])
    assert watch.pending  # `run` must not end before it has been seen why its last flow has failed
    watch.look()
    assert not watch.pending
    assert watch.lost("cache") == [1] and watch.lost("other") == []
    assert watch.gone("cache", 1)


# -- making it again --------------------------------------------------------------------------------------------------


def script(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


class Builds:
    """The generations of the cache that are kept: all are held here."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __iter__(self) -> Iterator[Any]:
        register = register_of(self.pipeline, "cache")
        for number in register.kept():
            yield SimpleNamespace(sink="cache", generation=register.generation(number))


class Case:
    """`run`'s loop around the losses of one sink; what a verb does is a small program."""

    def __init__(self, pipeline: Pipeline, server: Server, verbs: Callable[..., list[str]]) -> None:
        self.pipeline, self.server, self.said = pipeline, server, list[str]()
        self.asked: list[tuple[str, ...]] = []
        self.stopped: list[Path] = []
        runner = SimpleNamespace(running=[], fail=lambda folder, _reason: self.stopped.append(folder))
        self.engine = cast(Any, SimpleNamespace(runner=runner, builds=Builds(self.pipeline)))

        def command(verb: str, *words: str) -> list[str]:
            self.asked.append((verb, *words))
            return verbs(verb)

        self.losses = Losses(pipeline, Path("shop.yaml"), command=command)
        server.beats[1] = 0
        self.losses.watch.follow([("cache", 1)], [])
        self.losses.watch.look()

    def until(self, good: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
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
        register.promote(number)


def test_only_sinks_that_say_so_are_made_again(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, lambda verb: script("")))
    assert case.losses.sinks == ["cache"]


@pytest.mark.usefixtures("quick")
def test_from_the_loss_to_the_end(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, lambda verb: script("print('cache@2/main: 43% of the log')")))
    case.lose()
    case.until(lambda: bool(case.asked))
    assert case.asked[0] == ("rebuild", "shop.yaml", "cache", "--owned")
    assert case.stopped == [register_of(pipeline, "cache").generation(1).folder] * 2 and case.losses.busy
    status = _sink(pipeline, "cache", None)
    assert status["state"] == "rebuilding" and status["rebuilding"]["attempt"] == 1
    assert not [line for line in ailments(pipeline) if line.startswith("cache")]
    filled(case, "living")
    case.until(lambda: case.verbs == ["rebuild", "retire"])
    assert case.asked[1] == ("retire", "shop.yaml", "cache", "--generation", "1", "--yes")
    register_of(pipeline, "cache").remove(1)
    case.until(lambda: case.verbs == ["rebuild", "retire", "verify"])
    assert case.asked[2] == ("verify", "shop.yaml", "--sink", "cache", "--generation", "2", "--wait", "60")
    assert _sink(pipeline, "cache", None)["rebuilding"] is None  # readers have what they need; it is only looked at
    case.until(lambda: not case.losses.busy)
    assert case.said[-1] == "sink cache: what was made again equals Postgres"
    assert any("43% of the log" in line for line in case.said)
    assert _sink(pipeline, "cache", None)["rebuilding"] is None
    case.server.beats.clear()  # and it may forget again
    case.losses.watch.look()
    case.until(lambda: case.losses.busy)


@pytest.mark.usefixtures("quick")
def test_a_failure_is_tried_again_and_its_reason_is_told(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    cases.append(case := Case(pipeline, server, lambda verb: script("print('flow failed: because'); exit(1)")))
    case.lose()
    case.until(lambda: len(case.asked) >= 4)
    assert set(case.verbs) == {"rebuild"}
    assert _sink(pipeline, "cache", None)["rebuilding"]["error"] == "flow failed: because"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("code", "told"), [(0, "equals Postgres"), (2, "differs from Postgres"), (1, "could not be compared (no Postgres)")]
)
def test_what_is_complete_is_promoted_and_then_compared(
    pipeline: Pipeline, server: Server, cases: list[Case], code: int, told: str
) -> None:
    """Readers have nothing meanwhile, so the comparison does not keep them waiting; its result is told."""
    codes = {"rebuild": 0, "promote": 0, "retire": 0, "verify": code}
    cases.append(case := Case(pipeline, server, lambda verb: script(f"print('no Postgres'); exit({codes[verb]})")))
    case.lose()
    case.until(lambda: bool(case.asked))
    filled(case, "ready")
    case.until(lambda: "promote" in case.verbs)
    assert case.asked[1] == ("promote", "shop.yaml", "cache", "--generation", "2", "--force")
    register_of(pipeline, "cache").promote(2)
    case.until(lambda: "retire" in case.verbs)
    register_of(pipeline, "cache").remove(1)
    case.until(lambda: not case.losses.busy)
    assert case.verbs == ["rebuild", "promote", "retire", "verify"] and told in case.said[-1]
    assert ("--repair" in case.said[-1]) == (code == 2)


@pytest.mark.usefixtures("quick")
def test_a_loss_while_it_is_compared_begins_anew(pipeline: Pipeline, server: Server, cases: list[Case]) -> None:
    def child(verb: str) -> list[str]:
        return script("import time; time.sleep(60)" if verb == "verify" else "")

    cases.append(case := Case(pipeline, server, child))
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


def test_a_child_ends_with_the_process_that_owns_it() -> None:
    """Killed, it can't tell its child: the pipe does."""
    owner = f"""
        import sys, time
        from operations.run.child import Child
        child = Child({script("import sys; sys.stdin.buffer.read()")!r})
        print(child._process.pid, flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen(script(owner), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()
    child.wait(10)


@pytest.mark.parametrize("orphaned", [False, True])
def test_an_owned_rebuild_ends_well_or_when_it_is_orphaned(orphaned: bool) -> None:
    owned = """
        import sys, threading
        from console.cli.rebuild import _when_orphaned
        stop = threading.Event()
        threading.Thread(target=_when_orphaned, args=(stop,), daemon=True).start()
        print("up", flush=True)
        sys.exit(7 if stop.wait(0.5 if sys.argv[1] == "False" else 30) else 0)
    """
    process = subprocess.Popen([*script(owned), str(orphaned)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"up\n"
    if orphaned:
        process.stdin.close()
    assert process.wait(20) == (7 if orphaned else 0)
    process.stdin.close()
    process.stdout.close()


def test_a_child_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.run.child.END_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = Child([sys.executable, "-c", deaf])
    while not child.progress:
        time.sleep(0.01)
    child.end()
    assert child._process.returncode == -9


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
