"""A paused sink: the note, who waits for whom, and what every verb says to it. No server is asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, StateError
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline, load
from console.cli.main import cli
from operations.generations import promote as promoting
from operations.generations.promote import promote
from operations.generations.retire import retire
from operations.generations.targets import drop_sink_state
from operations.letters.replay import Replay, _group
from operations.losses.losses import Losses, _Healing
from operations.opened import open_generation
from operations.rebuild.chosen import Chosen
from operations.rebuild.rebuild import Rebuild
from operations.run.engine import Engine
from operations.run.refusals import Refusals
from operations.state import pausing
from operations.state.accepted import note_running, text_of, this_process
from operations.state.folder import note_captured, register_of
from operations.state.history import history_folder, history_lease
from operations.state.pausing import pause, paused, refuse_paused, resume
from operations.status.alive import ailments
from operations.status.sinks import _sink
from operations.verify.buckets import Keys
from operations.verify.comparison import marked
from operations.verify.verifier import Asked, Verifier
from spark.disk.state import Generation
from tests.support.lone_cache import TWO, written

FILE = TWO.replace('bootstrap: "127.0.0.1:1"', 'bootstrap: "127.0.0.1:1", tombstone_retention_hours: 2')


def quiet(_line: str) -> None: ...


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, FILE)


@pytest.fixture
def pipeline(file: Path) -> Pipeline:
    made = load(file)
    note_captured(made)
    return made


def call(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    error = str(done.exception) if isinstance(done.exception, StateError | ConfigError) else ""
    return done.exit_code, done.output + error


def living(pipeline: Pipeline) -> Generation:
    generation = register_of(pipeline, "cache").generation()
    generation.folder.mkdir(parents=True)
    return generation


# -- the note ---------------------------------------------------------------------------------------------------------


def test_both_verbs_may_be_called_again(file: Path, pipeline: Pipeline) -> None:
    code, said = call("pause", file, "cache", "--why", "new disks", "--json")
    first = json.loads(said)
    assert (code, first["paused"], first["changed"], first["why"]) == (0, True, True, "new disks")
    assert first["resume_before"] == first["since"] + 2 * 3600
    again = json.loads(call("pause", file, "cache", "--json")[1])
    assert again == first | {"changed": False}
    assert paused(pipeline, "other") is None
    ended = json.loads(call("resume", file, "cache", "--json")[1])
    assert (ended["paused"], ended["changed"]) == (False, True) and ended["was_paused_seconds"] >= 0
    assert call("resume", file, "cache") == (0, "sink cache: was not paused\n")
    assert paused(pipeline, "cache") is None


def test_a_sink_that_is_not_in_the_file(file: Path) -> None:
    for verb in ("pause", "resume"):
        code, said = call(verb, file, "cash")
        assert code == 1 and "no sink cash" in said


def test_a_note_that_can_not_be_read_leaves_the_sink_alone(pipeline: Pipeline) -> None:
    pause(pipeline, "cache", None, quiet)
    [note] = Path(pipeline.engine.state_dir).glob("p/cache/paused.json")
    note.write_text("{")
    with pytest.raises(StateError, match="to be left alone"):
        paused(pipeline, "cache")
    with pytest.raises(StateError, match=r"paused\.json can't be read"):
        refuse_paused(pipeline, ["cache"], "nothing is filled")
    assert pause(pipeline, "cache", None, quiet)[1] is True
    note.write_text("{")
    assert resume(pipeline, "cache") is not None
    assert paused(pipeline, "cache") is None


# -- who writes -------------------------------------------------------------------------------------------------------


def test_it_returns_when_the_holder_has_let_go(pipeline: Pipeline) -> None:
    generation, said = living(pipeline), list[str]()
    generation.lock()
    threading.Timer(0.6, generation.unlock).start()
    begun = time.monotonic()
    pause(pipeline, "cache", None, said.append)
    assert time.monotonic() - begun > 0.5 and "has let go of generation 1" in said[0]


def test_the_history_of_a_warehouse_is_waited_for_as_its_generations_are(pipeline: Pipeline) -> None:
    """It has a lease of its own, and goes on writing for as long as the batch at work lasts."""
    lease, said = history_lease(history_folder(pipeline, "cache"), "cache"), list[str]()
    token = lease.take()
    threading.Timer(0.6, lease.release).start()
    begun = time.monotonic()
    pause(pipeline, "cache", None, said.append)
    assert time.monotonic() - begun > 0.5 and said[0].endswith("has let go of its history")
    holder = lease.holder()
    assert holder is not None and holder.token > token and not lease.busy()  # one that was frozen is fenced


def test_a_history_that_is_not_let_go_of_is_told(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "LET_GO_SECONDS", 0.5)
    lease = history_lease(history_folder(pipeline, "cache"), "cache")
    lease.take()
    try:
        with pytest.raises(StateError, match="its history is still held"):
            pause(pipeline, "cache", None, quiet)
    finally:
        lease.release()


def test_a_holder_that_does_not_let_go_is_told(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "LET_GO_SECONDS", 0.5)
    generation = living(pipeline)
    generation.lock()
    try:
        with pytest.raises(StateError, match="may still write to it"):
            pause(pipeline, "cache", None, quiet)
        assert paused(pipeline, "cache") is not None
    finally:
        generation.unlock()


def test_one_that_was_frozen_meanwhile_has_lost_its_lease(pipeline: Pipeline) -> None:
    generation = living(pipeline)
    token = generation.lock()
    generation.unlock()  # as good as silent for longer than a lease lasts
    pause(pipeline, "cache", None, quiet)
    holder = generation.lease.holder()
    assert holder is not None and holder.token > token


def test_a_generation_is_not_taken(pipeline: Pipeline) -> None:
    generation = living(pipeline)
    pause(pipeline, "cache", None, quiet)
    with pytest.raises(StateError, match="sink cache is paused since"):
        open_generation(pipeline, cast(Catalogue, None), "cache", 1)
    assert not generation.lease.busy()


class Runner:
    def __init__(self) -> None:
        self.removed: list[Path] = []
        self.anew: list[bool] = []
        self.late: list[Callable[[], None]] | None = None  # a start that nobody answers is under way; what waits for it

    def remove(self, folder: Path, *, anew: bool = False) -> None:
        self.removed.append(folder)
        self.anew.append(anew)

    def once_over(self, _folder: Path, then: Callable[[], None]) -> None:
        if self.late is None:
            then()
        else:
            self.late.append(then)

    def stop(self) -> None:
        pass


def engine_of(pipeline: Pipeline) -> Engine:
    none: Any = None
    return Engine(pipeline, none, none, cast(Any, Runner()), [], [], 0, Refusals(pipeline))


def test_run_lets_go_and_takes_up_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, tried = engine_of(pipeline), list[str]()
    monkeypatch.setattr(engine, "_try", lambda sink, _number: tried.append(sink) or [])
    generation = living(pipeline)
    generation.lock()
    engine.builds.append(cast(Any, SimpleNamespace(sink="cache", number=1, generation=generation)))
    assert engine.follow() == [] and tried == ["other"]
    (Path(pipeline.engine.state_dir) / "p/cache/paused.json").write_text('{"since": 1, "by": "ann@host", "why": null}')
    assert engine.follow() == ["sink cache: paused since 1970-01-01 00:00:01 UTC by ann@host"]
    assert not generation.lease.busy() and cast(Any, engine.runner).removed == [generation.folder]
    assert (engine.builds, engine.follow(), tried) == ([], [], ["other"] * 3)
    resume(pipeline, "cache")
    assert engine.follow() == ["sink cache: resumed"]
    assert "cache" in tried


@pytest.mark.parametrize("how", ["paused", "closed"])
def test_the_lease_is_held_while_a_start_that_came_too_late_may_write(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """`pause` said that nothing is written any more, and `drop` removed what the start then made anew."""
    engine, generation = engine_of(pipeline), living(pipeline)
    monkeypatch.setattr(engine, "_try", lambda *_: [])
    generation.lock()
    engine.builds.append(cast(Any, SimpleNamespace(sink="cache", number=1, generation=generation)))
    late = cast(Any, engine.runner).late = list[Callable[[], None]]()
    if how == "paused":
        (Path(pipeline.engine.state_dir) / "p/cache/paused.json").write_text('{"since": 1, "by": "ann", "why": null}')
        engine.follow()
        assert not engine.builds
    else:
        engine.close()
    assert generation.lease.busy()
    (release,) = late
    release()
    assert not generation.lease.busy()


def test_run_goes_on_with_the_others_beside_a_note_that_can_not_be_read(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, tried = engine_of(pipeline), list[str]()
    monkeypatch.setattr(engine, "_try", lambda sink, _number: tried.append(sink) or [])
    living(pipeline)
    note = Path(pipeline.engine.state_dir) / "p/cache/paused.json"
    note.write_text("{")
    [said] = engine.follow()
    assert said.startswith(f"sink cache: paused by somebody whose note can't be read ({note} can't be read: ")
    assert list(engine.paused) == ["cache"] and tried == ["other"]


def test_who_is_opened_anew_is_not_told_to_end(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table was altered, or a setting: `status` said that the process was told to end, which was alive."""
    engine = engine_of(pipeline)
    monkeypatch.setattr(engine, "_try", lambda sink, number, _told=None: [f"{sink} {number}"])
    build = cast(Any, SimpleNamespace(sink="cache", number=1, generation=living(pipeline)))
    engine.builds.append(build)
    assert engine.take_again(build) == ["cache 1"]
    engine.builds.append(build)
    engine.adopt(pipeline, engine.catalogue, (), [("cache", 1)])
    assert cast(Any, engine.runner).anew == [True, True]


def test_a_cache_that_was_lost_is_not_made_again_meanwhile(pipeline: Pipeline) -> None:
    losses = Losses(pipeline, Path("p.yaml"))
    try:
        losses.healing["cache"] = _Healing("cache")
        losses.watch._lost = frozenset({("cache", 1, "v")})
        engine = engine_of(pipeline)
        engine.paused = {"cache": pause(pipeline, "cache", None, quiet)[0]}
        engine.runner.running = []
        assert losses.step(engine) == ["sink cache: it is not made again while it is paused"]
        assert losses.step(engine) == [] and not losses.healing
    finally:
        losses.close()


# -- what the others say ----------------------------------------------------------------------------------------------


def test_status_says_since_when_and_gives_no_alarm(pipeline: Pipeline) -> None:
    generation = living(pipeline)
    generation.refuse("its target is gone")
    pause(pipeline, "cache", "new disks", quiet)
    told = _sink(pipeline, "cache", None)
    assert (told["state"], told["last_error"], told["warning"]) == ("paused", None, None)
    assert told["paused"]["why"] == "new disks"
    assert ailments(pipeline, ["cache"]) == []
    resume(pipeline, "cache")
    assert _sink(pipeline, "cache", None)["state"] == "failed"
    assert ailments(pipeline, ["cache"]) == ["cache: refused"]


def test_status_tells_of_a_note_that_can_not_be_read(pipeline: Pipeline) -> None:
    living(pipeline)
    (Path(pipeline.engine.state_dir) / "p/cache/paused.json").write_text("[]")
    told = _sink(pipeline, "cache", None)
    assert (told["state"], told["paused"]["since"], told["paused"]["resume_before"]) == ("paused", 0, 0)
    assert "can't be read" in told["paused"]["why"] and told["warning"].endswith("forgotten deletes that it needs")
    assert ailments(pipeline, ["cache"]) == []


def test_a_pause_that_outlives_the_logs_memory_is_warned_of(pipeline: Pipeline) -> None:
    pause(pipeline, "cache", None, quiet)
    [note] = Path(pipeline.engine.state_dir).glob("p/cache/paused.json")
    note.write_text(json.dumps({"since": time.time() - 3601, "by": "ann@host", "why": None}))
    assert "may have forgotten deletes" in _sink(pipeline, "cache", None)["warning"]


def test_what_writes_refuses_it_by_name(file: Path, pipeline: Pipeline) -> None:
    living(pipeline)
    pause(pipeline, "cache", None, quiet)
    stop = threading.Event()
    for refused in (
        lambda: promote(pipeline, "cache", 1, quiet),
        lambda: retire(pipeline, "cache", 1, quiet),
        lambda: Rebuild(Chosen(pipeline, file, "cache", quiet), 1.0, stop).run(auto=False),
        lambda: Verifier(pipeline, cast(Catalogue, None), Asked(["cache"], repair=True)),
    ):
        with pytest.raises(StateError, match=r"sink cache is paused since .*\n.*left alone") as error:
            refused()
        assert f"headwater resume {file} cache" in str(error.value)
    code, said = call("run", file, "--until-caught-up")
    assert code == 1 and "sink cache is paused since" in said and "can't catch up" in said


@pytest.mark.parametrize("only", [["cache"], []])
def test_drop_refuses_one_that_a_run_would_bring_back_at_once(
    file: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, only: list[str]
) -> None:
    """The pause goes with the folder: `run` said \"resumed\", and filled the sink from offset 0 half a second later."""
    dropped = list[str]()
    monkeypatch.setattr(
        "operations.generations.targets.drop_generation", lambda _pipeline, name, _generation: dropped.append(name)
    )
    note = Path(pipeline.engine.state_dir) / "p/cache/paused.json"
    living(pipeline)
    pause(pipeline, "cache", None, quiet)
    note_running(pipeline, this_process(text_of(file, file.read_bytes())))
    with pytest.raises(
        StateError, match=r"has sink cache in its file(.|\n)*nothing was removed(.|\n)*take it out"
    ) as error:
        drop_sink_state(pipeline, only)
    assert f"headwater apply {file}" in str(error.value) and note.exists() and not dropped
    without = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("  cache:"))
    note_running(pipeline, this_process(text_of(file, without.encode())))  # it was taken out, and applied
    drop_sink_state(pipeline, only)
    assert dropped == ["cache"] and not note.exists()


def test_drop_removes_one_that_nobody_runs(file: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = list[str]()
    monkeypatch.setattr(
        "operations.generations.targets.drop_generation", lambda _pipeline, name, _generation: dropped.append(name)
    )
    living(pipeline)
    pause(pipeline, "cache", None, quiet)
    drop_sink_state(pipeline, ["cache"])
    living(pipeline)
    note_running(pipeline, this_process(text_of(file, file.read_bytes()), only=("other",)))
    drop_sink_state(pipeline, ["cache"])
    assert dropped == ["cache", "cache"]


def test_drop_forgets_what_verify_found_of_it(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations of a sink that is filled anew have the same numbers: they were shown as equal, compared by nobody."""
    from operations.state.verified import last_verified, note_verified, verified_generations

    monkeypatch.setattr("operations.generations.targets.drop_generation", lambda *_: None)
    living(pipeline)
    found = {"views": [{"columns": {}, "not_repaired": [], "differences": 0}], "error": None, "generation": 1}
    sinks = [{"sink": name, **found} for name in ("cache", "cache_2")]
    note_verified(pipeline, {"at": 1.0, "sample": None, "sinks": sinks})
    assert verified_generations(pipeline, "cache")(1) and verified_generations(pipeline, "cache_2")(1)
    drop_sink_state(pipeline, ["cache"])
    assert last_verified(pipeline)["sinks"] == [] and verified_generations(pipeline, "cache")(1) is None
    assert verified_generations(pipeline, "cache_2")(1)  # another one


def test_what_verify_found_of_a_generation_goes_with_it(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each generation that was ever compared stayed in the note for good."""
    from operations.state.verified import FILE, last_verified, note_verified

    monkeypatch.setattr("operations.generations.retire.drop_generation", lambda *_: None)
    living(pipeline)
    register_of(pipeline, "cache").create("a test")
    found = {"views": [{"columns": {}, "not_repaired": [], "differences": 0}], "error": None}
    for number in (2, 1):
        note_verified(
            pipeline, {"at": 1.0, "sample": None, "sinks": [{"sink": "cache", "generation": number, **found}]}
        )
    retire(pipeline, "cache", 2, quiet)
    noted = json.loads((Path(pipeline.engine.state_dir) / pipeline.name / FILE).read_text())
    assert sorted(noted) == ["cache", "cache#1"] and last_verified(pipeline)["sinks"]


def test_verify_leaves_it_out_unless_it_is_named(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from operations.verify import verifier

    monkeypatch.setattr(verifier, "peek", lambda _pipeline, _catalogue, generation: generation)
    pause(pipeline, "cache", None, quiet)
    none, said = cast(Catalogue, None), list[str]()
    assert list(Verifier(pipeline, none, Asked(), said.append).builds) == ["other"]
    assert said[0].startswith("cache is paused since") and said[0].endswith("not compared")
    assert list(Verifier(pipeline, none, Asked(["cache"])).builds) == ["cache"]
    pause(pipeline, "other", None, quiet)
    with pytest.raises(StateError, match="nothing was compared"):
        Verifier(pipeline, none, Asked())


# -- who has begun before it was paused -------------------------------------------------------------------------------


def test_a_repair_under_way_writes_no_page_more(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from operations.verify.repair import repair as module
    from operations.verify.repair.work import Repair

    keys, done = Keys(tmp_path / "keys"), list[str]()
    for key in "abc":
        keys.add(marked("changed", key))
    keys.flush()

    def page(_work: Any, kinds: dict[str, str]) -> None:
        done.extend(kinds)
        pause(pipeline, "cache", None, quiet)

    monkeypatch.setattr(module, "PAGE", 1)
    work = Repair(*[cast(Any, None)] * 6)
    monkeypatch.setattr(module, "work_of", lambda *_: work)
    monkeypatch.setattr(module, "_rows", page)
    view = SimpleNamespace(table=SimpleNamespace(qualified="public.t"))
    build, settler = (
        SimpleNamespace(sink="cache", pipeline=pipeline, warehouse=False),
        SimpleNamespace(view=view, holding=None, seen=None),
    )
    none: Any = None
    with pytest.raises(StateError, match=r"sink cache is paused(.|\n)*no more of it was repaired"):
        module.repair(cast(Any, build), none, cast(Any, settler), keys, none, caught_up=True)
    assert done == ["a"]


def test_letters_under_way_are_left_and_those_of_other_sinks_are_written(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[tuple[str, list[bytes]]]()

    def page(_openings: Any, sink: str, _number: int, _view: str, letters: dict[bytes, Any]) -> dict[bytes, bool]:
        done.append((sink, list(letters)))
        pause(pipeline, "cache", None, quiet)
        return dict.fromkeys(letters, True)

    monkeypatch.setattr("operations.letters.replay.PAGE", 1)
    monkeypatch.setattr("operations.letters.rewrite.written_again", page)
    found, work = SimpleNamespace(log=SimpleNamespace(clear=lambda _keys: None)), Replay()
    openings = cast(Any, SimpleNamespace(pipeline=pipeline))
    for sink in ("cache", "other"):
        letters = {
            key: cast(Any, SimpleNamespace(letter=DeadLetter(sink, "v", key.decode(), 8, "no"), at=1))
            for key in (b"1", b"2")
        }
        _group(openings, work, cast(Any, found), (sink, 1, "v"), letters, quiet)
    assert done == [("cache", [b"1"]), ("other", [b"1"]), ("other", [b"2"])]
    assert work.taken == 3
    [left] = work.left
    assert (left["sink"], left["key"]) == ("cache", "2") and "sink cache is paused since" in left["why"]


@pytest.mark.parametrize("when", ["while it is waited for", "among its views"])
def test_a_promotion_under_way_moves_no_more_readers(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    register, moved = register_of(pipeline, "cache"), list[str]()
    register.move(register.create("test").number, "ready")
    for number in (1, 2):
        (register.generation(number).flow_folder("v") / "checkpoint").mkdir(parents=True)

    def move(view: str, _old: int) -> None:
        moved.append(view)
        pause(pipeline, "cache", None, quiet)

    target = SimpleNamespace(living=lambda _view: 1, promote=move, close=lambda: None)
    waits = (lambda *_: pause(pipeline, "cache", None, quiet)) if when.startswith("while") else (lambda *_: None)
    monkeypatch.setattr(promoting, "open_target", lambda _config: target)
    monkeypatch.setattr(promoting, "_level", waits)
    monkeypatch.setattr(Generation, "views", lambda _self: ["v", "w"])
    with pytest.raises(StateError, match="sink cache is paused since") as error:
        promote(pipeline, "cache", 2, quiet)
    begun = register.promotion()
    if when.startswith("while"):
        assert "nothing was changed" in str(error.value)
        assert (moved, begun) == ([], None)  # else nothing could be retired
    else:
        assert "readers may see generation 2 in some views already" in str(error.value)
        assert moved == ["v"] and begun is not None and begun.moving  # ended by the same again, or by `run`
    assert register.living() == 1
