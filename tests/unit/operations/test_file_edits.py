"""What a changed file asks of a process that runs an older one; and which file that is. No server is asked."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline, loads
from operations.edits import file_watch
from operations.edits.build import build, left_behind, remove_left
from operations.edits.changes import changes_between
from operations.edits.file_watch import FileWatch
from operations.edits.pending import pending
from operations.state.accepted import (
    Text,
    accepted_path,
    file_status,
    hand_over,
    note_running,
    read_accepted,
    read_runs,
    runs_without,
    text_of,
    this_process,
)
from operations.state.folder import register_of
from spark.disk.files import disk_full
from spark.disk.made_of import define
from spark.disk.register import Stage
from tests.support.apart import Child
from tests.support.begun_beside import begun_beside
from tests.support.promoted import promoted

FILE = """\
version: 1
name: p
source: {{host: 127.0.0.1, port: 1, database: d, user: u, password: x, tables: [public.t, public.w]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views:
  v: {{root: t, columns: [id, {column}]}}
  w: {{root: w}}
sinks:
  cache: {{type: redis, url: "redis://127.0.0.1:{port}", view: v}}
  other: {{type: redis, url: "redis://127.0.0.1:1", view: w, key_prefix: "o:"}}
{more}
engine: {{state_dir: {folder}, trigger_ms: {trigger}}}
"""


TAKES_UP = (
    "run has sink {} take up the captured tables that it does not keep yet, and opens it anew for that: what it keeps "
    "stands still meanwhile"
)
MAY_TAKE_UP = TAKES_UP.replace(", and opens it anew for that", ", if there are any, and opens it anew then")


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder / "state", folder / "pipeline.yaml"

    def text(self, column: str = "name", port: int = 1, more: str = "", trigger: int = 0) -> str:
        return FILE.format(folder=self.folder, column=column, port=port, more=more, trigger=trigger)

    def load(self, **changed: Any) -> Pipeline:
        return loads(self.text(**changed), str(self.path))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.path.write_text(made.text())
    return made


def filled(pipeline: Pipeline, sink: str) -> None:
    """A living generation that has written."""
    generation = register_of(pipeline, sink).generation()
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(generation, pipeline, [])


NEW = '  third: {type: redis, url: "redis://127.0.0.1:1", view: w, key_prefix: "t:"}'


def test_what_has_changed_and_nothing_else(files: Files) -> None:
    old = files.load()
    filled(old, "cache")
    filled(old, "other")
    assert changes_between(old, files.load()).lines() == []
    rebuilt = changes_between(old, files.load(column="title"))
    assert list(rebuilt.rebuilt) == ["cache"] and rebuilt.reopened == () and "views.v.columns" in rebuilt.lines()[0]
    assert changes_between(old, files.load(port=2)).to_dict()["reopened"] == ["cache"]
    assert changes_between(old, files.load(more=NEW)).added == ("third",)
    assert changes_between(old, files.load(more=NEW), ["cache"]).added == ()
    assert changes_between(files.load(more=NEW), old).removed == ("third",)
    restart = changes_between(old, files.load(trigger=5, more=NEW))
    assert restart.restart == ("engine.trigger_ms",) and restart.added == ()
    assert "started again for engine.trigger_ms" in restart.lines()[0]


def test_what_was_replaced_before_is_named_before_it_is_removed(files: Files) -> None:
    """Somebody may have kept it on purpose, to go back to."""
    old, new = files.load(), files.load(column="title")
    filled(old, "cache")
    register = register_of(old, "cache")
    assert changes_between(old, new).to_dict()["outlived"] == {}
    register.create("by hand")
    promoted(register, 2)
    define(register.generation(2), old, [])
    (register.generation(2).flow_folder("main") / "checkpoint").mkdir(parents=True)
    changes = changes_between(old, new)
    assert changes.to_dict()["outlived"] == {"cache": [1]}
    assert "run removes generation 1 of sink cache once that is shown: `rollback` keeps the one before it" in (
        changes.lines(told=["cache"])
    )
    assert changes_between(old, old).to_dict()["outlived"] == {}


def test_a_sink_that_has_written_nothing_is_opened_anew_as_the_file_says(files: Files) -> None:
    assert changes_between(files.load(), files.load(column="title")).reopened == (("cache", 1),)


@pytest.mark.parametrize("left", ["status.json", "unread.json"])
def test_a_sink_whose_target_could_not_be_made_is_opened_anew_as_the_file_says(files: Files, left: str) -> None:
    """Its definition was written down as it began: a mapping that the server refuses is corrected in the file."""
    old, new = files.load(), files.load(column="title")
    generation = register_of(old, "cache").generation(1)
    define(generation, old, [])
    flow = generation.flow_folder("main")
    flow.mkdir()
    (flow / "status.json").write_text(json.dumps({"state": "failed", "batch_id": -1, "current_at": 0}))
    if left != "status.json":
        (flow / left).write_text("{}")
    changes = changes_between(old, new)
    assert changes.reopened == (("cache", 1),) and changes.rebuilt == {}
    assert changes_between(old, old).lines() == []


LAKE = "  lake: {type: iceberg, tables: all, catalog_uri: /c.db, warehouse: /w, namespace: n}"


def test_a_warehouse_is_opened_anew_for_a_table_that_is_captured_no_more_and_for_one_that_is_again(
    files: Files,
) -> None:
    text = files.text(more=LAKE).replace("public.w]", "public.w, public.x]")
    both, without = loads(text, ""), loads(text.replace(", public.x]", "]"), "")
    define(register_of(both, "lake").generation(1), both, ["public.t", "public.w", "public.x"])
    for before, after in ((both, without), (without, both)):
        changes = changes_between(before, after)
        assert (changes.reopened, changes.widened) == ((("lake", 1),), ())
    assert changes_between(both, both).lines() == []


def test_a_cache_of_all_tables_is_not_touched_for_one_that_is_captured_no_more(files: Files) -> None:
    """Opened anew it was refused, and no table of it was kept up to date."""
    text = files.text(more='  all: {type: redis, tables: all, url: "redis://127.0.0.1:1", key_prefix: "a:"}')
    text = text.replace("public.w]", "public.w, public.x]")
    both, without = loads(text, ""), loads(text.replace(", public.x]", "]"), "")
    generation = register_of(both, "all").generation(1)
    define(generation, both, ["public.t", "public.w", "public.x"])
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    assert changes_between(both, without).lines() == [] == changes_between(without, both).lines()


def test_a_sink_that_comes_to_keep_all_tables_is_told(files: Files) -> None:
    """`plan` had nothing to change, and nothing was done either."""
    some = LAKE.replace("tables: all", "tables: [public.t]")
    old, new = files.load(more=some), files.load(more=LAKE)
    filled(old, "lake")
    changes = changes_between(old, new)
    assert changes.to_dict()["widened"] == ["lake"] and not changes.rebuilt and not changes.reopened
    assert changes.lines() == [TAKES_UP.format("lake")]
    assert changes_between(new, new).lines() == []
    other = changes_between(old, files.load(more=LAKE.replace("namespace: n", "namespace: other")))
    assert list(other.rebuilt) == ["lake"] and not other.widened  # the next one keeps them from its beginning


KEPT = ["public.t", "public.w"]


@pytest.mark.parametrize(("more", "line"), [("public.x", TAKES_UP), ('"sales.*"', MAY_TAKE_UP)])
def test_a_sink_of_all_tables_that_is_opened_anew_for_a_table_more_is_told(files: Files, more: str, line: str) -> None:
    """All tables of a warehouse were behind for minutes at each edit of the list, and `plan` had not said it."""
    some = "\n  some: {type: redis, tables: [public.t], url: 'redis://127.0.0.1:1', key_prefix: 's:'}"
    text = files.text(more=LAKE + some)
    old, new = loads(text, ""), loads(text.replace("public.w]", f"public.w, {more}]"), "")
    for begin in (lambda *_: None, lambda sink: define(register_of(old, sink).generation(1), old, KEPT)):
        for sink in ("lake", "some"):
            begin(sink)
        assert changes_between(old, new).lines() == [], "what has written nothing takes the tables that there are"
    for sink in ("lake", "some"):
        filled(old, sink)
    changes = changes_between(old, new)
    assert (changes.widened, changes.reopened, changes.lines()) == (("lake",), (), [line.format("lake")])
    if more == "public.x":  # captured by its schema already
        whole = loads(text.replace("public.w]", '"public.*"]'), "")
        assert changes_between(whole, loads(text.replace("public.w]", '"public.*", public.x]'), "")).lines() == []


@pytest.mark.parametrize(
    ("tables", "line"),
    [('"public.*"', MAY_TAKE_UP), ('"public.*", public.x', TAKES_UP), ('"public.*", public.t', MAY_TAKE_UP)],
)
def test_no_standstill_is_promised_where_a_schema_may_have_no_other_table(files: Files, tables: str, line: str) -> None:
    """Two tables that became their schema: nothing happened, and `plan` had said that what is kept stands still."""
    text = files.text(more=LAKE)
    old, new = loads(text, ""), loads(text.replace("public.t, public.w]", f"{tables}]"), "")
    define(register_of(old, "lake").generation(1), old, ["public.t", "public.w"])
    filled(old, "lake")
    assert changes_between(old, new).lines() == [line.format("lake")]


def test_a_sink_of_another_kind_needs_another_name(files: Files) -> None:
    text = files.text().replace(
        'cache: {type: redis, url: "redis://127.0.0.1:1", view: v}',
        'cache: {type: elasticsearch, url: "http://127.0.0.1:1", view: v}',
    )
    assert "sinks.cache.type" in changes_between(files.load(), loads(text)).restart[0]


def test_what_is_kept_is_for_its_owner_alone(files: Files) -> None:
    pipeline = files.load()
    hand_over(pipeline, Text("p.yaml", files.text(), 1.0))
    assert stat.S_IMODE(accepted_path(pipeline).stat().st_mode) == 0o600
    assert read_accepted(pipeline) == Text("p.yaml", files.text(), 1.0)
    note_running(pipeline, this_process(Text("p.yaml", files.text(), 2.0), building=("cache",)))
    [found] = read_runs(pipeline)
    assert found.alive(pipeline) and found.pid == os.getpid() and found.building == ("cache",)
    assert file_status(pipeline)["running"] == found.taken.digest


def test_a_process_that_is_gone_runs_nothing(files: Files) -> None:
    pipeline = files.load()
    assert pending(pipeline) is None
    note_running(pipeline, this_process(Text("p.yaml", files.text(), 2.0)))
    changes = pending(files.load(more=NEW))
    assert changes is not None and changes.added == ("third",)
    assert runs_without(pipeline, "third") and not runs_without(pipeline, "cache")
    path = files.folder / "p" / "running.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": 2**22 + 1}))
    assert pending(pipeline) is None and file_status(pipeline)["pid"] is None
    assert not runs_without(pipeline, "third")


# -- the watch ---------------------------------------------------------------------------------------------------------


class Run:
    """A process of `run` without Spark."""

    def __init__(self, files: Files, meanwhile: str | None = None, only: Sequence[str] = ()) -> None:
        """Begin it; ``meanwhile``: a file that is applied between its reading of its own and the watch's beginning;
        ``only``: the sinks that it is started for."""
        self.files, self.adopted, self.children = files, list[Any](), list[Child]()
        self.conf: dict[str, str] = {}
        conf = SimpleNamespace(set=self.conf.__setitem__)
        self.engine = cast(
            Any,
            SimpleNamespace(pipeline=files.load(), paused={}, spark=SimpleNamespace(conf=conf), adopt=self._adopt),
        )
        taken = text_of(files.path, files.path.read_bytes())
        if meanwhile is not None:
            hand_over(files.load(), Text(str(files.path), meanwhile, taken.at + 4.0))
        self.losses = cast(Any, SimpleNamespace(adopt=lambda pipeline, only: None, healing={}))
        self.let_go = list[tuple[str, int]]()
        source = cast(Any, SimpleNamespace(pipeline=None))
        self.watch = FileWatch(self.engine, source, self.losses, taken, only, None, self._start, self._let_go)

    def _adopt(self, pipeline: Pipeline, _catalogue: Any, _only: Any, reopened: Any) -> list[str]:
        self.adopted.append((list(pipeline.sinks), list(reopened)))
        return []

    def _start(self, *arguments: Any) -> Any:
        self.children.append(Child(*arguments))
        return self.children[-1]

    def _let_go(self, sink: str) -> None:
        self.let_go.append((sink, len(self.children)))

    def apply(self, text: str) -> list[str]:
        hand_over(self.engine.pipeline, Text(str(self.files.path), text, 5.0))
        return self.watch.step()


@pytest.fixture
def run(files: Files, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(file_watch, "source_catalogue", lambda _pipeline: None)
    monkeypatch.setattr(file_watch, "check_machines", lambda *_: None)
    filled(files.load(), "cache")
    return Run(files)


def test_saved_is_not_applied(files: Files, run: Run) -> None:
    files.path.write_text(files.text(more=NEW))
    assert run.watch.step() == [] and run.adopted == []
    assert "taken up" in run.apply(files.text(more=NEW))[0]
    assert run.adopted == [(["cache", "other", "third"], [("other", 1)])] or run.adopted[0][0][-1] == "third"
    assert run.watch.step() == [] and len(run.adopted) == 1


def test_a_file_that_is_wrong_changes_nothing(files: Files, run: Run) -> None:
    [said] = run.apply(files.text().replace("root: w", "rot: w"))
    assert "not taken up" in said and run.adopted == []
    refused = file_status(run.engine.pipeline)["refused"]
    assert refused["reason"] and refused["at"] == 5.0
    [said] = run.apply(files.text(trigger=7))
    assert "engine.trigger_ms" in said and run.adopted == []
    run.apply(files.text())  # the old one again: all is well
    assert file_status(run.engine.pipeline)["refused"] is None


def test_a_new_warehouse_is_known_to_the_session(files: Files, run: Run) -> None:
    where = "catalog_uri: warehouse/catalog.db, warehouse: warehouse, namespace: n"
    run.apply(files.text(more=f"  house: {{type: iceberg, tables: [public.w], {where}}}"))
    assert any(name.startswith("spark.sql.catalog.") for name in run.conf)


def test_a_changed_view_is_built_and_tried_again(files: Files, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "FIRST_PAUSE", 0.0)
    said = run.apply(files.text(column="title"))
    assert any("its next generation is built, because views.v.columns" in line for line in said)
    [child] = run.children
    assert child.arguments[1].text == files.text(column="title") and child.arguments[2:] == ("cache", None)
    assert file_status(run.engine.pipeline)["building"] == ["cache"]
    child.finish(error=HeadwaterError("no Postgres"))
    assert "not built, again in" in run.watch.step()[0]
    run.watch.step()
    assert len(run.children) == 2
    run.children[1].finish(True)
    assert run.watch.step()[0].startswith("sink cache: readers see what the file says now")
    assert file_status(run.engine.pipeline)["building"] == [] and run.children[1].broken_off


def test_one_that_differs_is_left_to_a_person_by_its_number(files: Files, run: Run) -> None:
    """It was removed, if an attempt before had filled it, and the message still said to repair it."""
    run.apply(files.text(column="title"))
    register = register_of(run.engine.pipeline, "cache")
    number = register.create("x", own=True).number
    register.move(number, "ready")
    run.children[0].finish(False)
    [line] = run.watch.step()
    assert f"--generation {number} --repair`" in line


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), disk_full(Path("running.json"))])
def test_what_can_not_be_noted_keeps_nothing_from_being_told_and_is_noted_later(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """That the next generation differs was told by nobody, and the applied file was taken up at each step again."""

    def full(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(file_watch, "note_running", full)
        [taken, begun] = run.apply(files.text(column="title"))
        assert "is taken up" in taken and "its next generation is built" in begun
        assert run.watch.step() == [] and len(run.adopted) == 1
        run.children[0].finish(False)
        [line] = run.watch.step()
        assert "its next generation differs from Postgres and is not shown" in line
        [line] = run.apply(files.text(trigger=7))
        assert "not taken up" in line and run.watch.step() == []
        assert file_status(run.engine.pipeline)["refused"] is None
    assert run.watch.step() == []
    told = file_status(run.engine.pipeline)
    assert (told["building"], told["running"]) == ([], run.watch.taken.digest) and told["refused"]["at"] == 5.0


def test_what_was_being_built_goes_on_after_a_kill(files: Files, run: Run) -> None:
    run.apply(files.text(column="title"))
    files.path.write_text(files.text(column="title"))  # as it was applied
    again = Run(files)
    again.watch.step()
    assert len(again.children) == 1 and again.children[0].arguments[2] == "cache"
    files.path.write_text(files.text(column="other"))  # saved since: what is asked for now is not known
    other = Run(files)
    other.watch.step()
    assert other.children == []


def test_a_file_that_it_began_with_is_built_once_it_is_applied(files: Files, run: Run) -> None:
    """Edited, `run` started again, and only then applied: `apply` says that `run` builds it."""
    files.path.write_text(files.text(column="title"))
    again = Run(files)
    assert again.watch.step() == [] and again.children == []
    said = again.apply(files.text(column="title"))
    assert any("its next generation is built, because views.v.columns" in line for line in said)
    assert file_status(again.engine.pipeline)["building"] == ["cache"]
    again.watch.step()
    assert again.apply(files.text(column="title")) == [] and len(again.children) == 1  # it is under way


def test_a_file_that_was_applied_while_it_started_is_taken_up(files: Files, run: Run) -> None:
    """Its note was taken for one from before the start: the new sink never came, and nobody was told."""
    run.apply(files.text())  # one from before the start is nothing new
    assert Run(files).watch.step() == []
    again = Run(files, meanwhile=files.text(more=NEW))
    assert "taken up" in again.watch.step()[0] and again.adopted[0][0][-1] == "third"
    assert again.watch.step() == [] and len(again.adopted) == 1


def test_a_file_that_it_began_with_and_that_was_applied_while_it_started_is_built(files: Files, run: Run) -> None:
    """`apply` says that `run` builds the next generation; it went on with the old one for good."""
    files.path.write_text(files.text(column="title"))
    again = Run(files, meanwhile=files.text(column="title"))
    assert "its next generation is built, because views.v.columns" in again.watch.step()[0]
    assert len(again.children) == 1


def test_a_note_of_an_applied_file_that_cannot_be_read_is_told_at_the_start(files: Files, run: Run) -> None:
    """It may be of a file that was applied while it started."""
    accepted_path(run.engine.pipeline).write_text("{")
    [said] = Run(files).watch.step()
    assert "not taken up" in said and "headwater apply FILE" in said


def test_a_newer_file_ends_what_the_older_one_asked_for(files: Files, run: Run) -> None:
    run.apply(files.text(column="title"))
    run.apply(files.text())
    assert run.children[0].broken_off and not run.watch.building
    run.engine.paused = {"cache": None}
    run.apply(files.text(column="title"))
    assert len(run.children) == 1  # not while it is paused


def begun(files: Files, stage: Stage, *, own: bool = True, column: str = "title") -> int:
    """A generation of a file that has this column, in a stage."""
    pipeline = files.load(column=column)
    register = register_of(pipeline, "cache")
    number = begun_beside(register, "views.v.columns changed", own=own).number
    generation = register.generation(number)
    (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(generation, pipeline, [])
    if stage != "filling":
        register.move(number, stage)
    return number


@pytest.mark.parametrize("stage", ["filling", "ready"])
def test_what_was_begun_for_a_file_that_was_taken_back_goes(files: Files, run: Run, stage: Stage) -> None:
    """It stayed half filled, or was kept up to date for good, and `promote` would have shown that file's documents."""
    run.apply(files.text(column="title"))
    number = begun(files, stage)
    said = run.apply(files.text())
    assert run.children[0].broken_off
    assert f"sink cache: generation {number} was begun for an older file, and is removed" in said
    _, child = run.children
    assert child.arguments[0] is remove_left and child.arguments[2:] == ("cache", None)
    assert file_status(run.engine.pipeline)["building"] == []  # nothing is built, and no start would go on with it
    child.said, child.error, child.over = ["sink cache: x"], HeadwaterError("no Redis"), True
    told = run.watch.step()
    assert told[0] == "sink cache: x" and "what was begun for an older file is not removed, again in" in told[1]
    again = Run(files)  # killed before it was removed: the same file asks for the same
    again.watch.step()
    assert [one.arguments[0] for one in again.children] == [remove_left]
    again.children[0].finish()
    assert again.watch.step() == [] and not again.watch.building


def test_readers_that_were_sent_to_a_file_that_was_taken_back_are_led_back(files: Files, run: Run) -> None:
    run.apply(files.text(column="title"))
    number, register = begun(files, "ready"), register_of(files.load(), "cache")
    register.begin_promotion(number, 1)
    run.apply(files.text())
    register.promote(number)  # `run` ends what was cut
    run.children[1].finish()
    assert run.watch.step() == ["sink cache: its next generation is built, because views.v.columns changed"]
    run.watch.step()
    assert run.children[2].arguments[0] is build and file_status(run.engine.pipeline)["building"] == ["cache"]


def test_what_was_begun_for_a_file_that_another_one_followed_while_nobody_ran_goes(files: Files) -> None:
    """Or that was applied with a key for which `run` is started again."""
    filled(files.load(), "cache")
    begun(files, "ready")
    begun(files, "ready", own=False)
    note_running(files.load(), this_process(Text("p.yaml", files.text(column="title"), 1.0), building=("cache",)))
    run = Run(files)
    run.watch.step()
    assert [one.arguments[0] for one in run.children] == [remove_left]
    # What the file wants and the living one is not, is not left over: it was only saved, and never applied.
    files.path.write_text(files.text(column="other"))
    saved = Run(files)
    saved.watch.step()
    assert saved.children == []


def test_what_was_begun_for_a_file_that_named_tables_goes_once_all_are_wanted_again(tmp_path: Path) -> None:
    """Of a sink of all tables a definition names those that there were, so no other file makes it outdated."""
    files = Files(tmp_path)
    whole = files.text().replace("view: w, key_prefix", "tables: all, key_prefix")
    some = files.text().replace("view: w, key_prefix", "tables: [public.t], key_prefix")
    every, few = loads(whole, "p.yaml"), loads(some, "p.yaml")
    register = register_of(every, "other")
    living = register.generation()
    (living.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(living, every, ["public.t", "public.w"])
    narrow = register.generation(register.create("sink.tables changed", own=True).number)
    (narrow.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(narrow, few, [])
    assert left_behind(every, "other", idle=False) == [narrow.number]
    assert left_behind(few, "other", idle=False) == []
    wide = register.generation(begun_beside(register, "a table was altered", own=True).number)
    (wide.flow_folder("main") / "checkpoint").mkdir(parents=True)
    define(wide, every, ["public.t", "public.w"])
    assert left_behind(every, "other", idle=False) == [narrow.number]


def test_what_a_person_has_begun_and_what_the_file_asks_for_stays(files: Files, run: Run) -> None:
    begun(files, "ready", own=False)
    begun(files, "ready", column="name")  # as the file says: it differs from Postgres, and waits for a person
    run.apply(files.text(more=NEW))
    assert run.children == [] and not run.watch.building


def test_what_had_not_begun_to_write_goes_where_it_was_ours(files: Files, run: Run) -> None:
    """Between its number and its first documents Spark starts, for seconds; it was listed as being filled for good."""
    register = register_of(files.load(), "cache")
    register.create("a table was altered", own=True)  # by whoever follows the tables: not of a file
    run.apply(files.text(more=NEW))
    assert run.children == []
    run.apply(files.text(column="title", more=NEW))
    run.apply(files.text(more=NEW))
    assert run.children[-1].arguments[0] is remove_left


def test_what_is_left_of_an_older_file_is_removed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(files.load(), "cache")
    kept = begun(files, "ready", own=False)
    gone = [begun(files, "ready"), begun(files, "filling"), begun(files, "retiring")]  # cut in its middle
    removed = list[int]()
    monkeypatch.setattr("operations.generations.retire.retire", lambda *given: removed.append(given[2]))
    remove_left(lambda _line: None, Text("p.yaml", files.text(), 1.0), "cache", None)
    assert removed == gone and kept not in removed


def test_what_is_built_waits_until_what_it_needs_was_read(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was filled of a log that had no values of a column which the file had come to show."""
    monkeypatch.setattr("operations.edits.file_watch.WAIT_SECONDS", 0.0)
    may = {"cache": False}
    run.watch.may_build = may.__getitem__
    run.apply(files.text(column="title"))
    assert run.watch.step() == [] and run.children == []
    monkeypatch.setattr("operations.edits.file_watch.TELL_SECONDS", 0.0)
    (line,) = run.watch.step()
    assert "waits until rows of tables that it reads are read again" in line
    assert run.watch.step() == [] and run.children == [], "it is said once"
    may["cache"] = True
    run.watch.step()
    assert len(run.children) == 1
    number = begun(files, "ready")
    may["cache"] = False
    run.apply(files.text())  # to remove one needs nothing
    assert number and run.children[1].arguments[0] is remove_left


def test_a_sink_has_one_builder_at_a_time(files: Files, run: Run) -> None:
    """An evolution that filled the sink's next generation when a file was applied went on, and was in the way."""
    run.losses.healing = {"cache": None}
    run.apply(files.text(column="title"))
    assert run.children == [] and run.let_go == []  # it is being made again for another reason
    run.losses.healing = {}
    run.watch.step()
    assert run.let_go == [("cache", 0)] and len(run.children) == 1  # ended before ours begins


def test_a_lost_cache_is_made_again_before_its_next_generation(files: Files, run: Run) -> None:
    """Both filled the same generation: who makes it again failed with an alarm for as long as the other was at it."""
    run.apply(files.text(column="title"))
    run.losses.healing = {"cache": None}
    run.watch.give_way("cache")
    assert run.children[0].broken_off and run.let_go == [("cache", 0), ("cache", 1)]
    run.watch.give_way("other")  # of which nothing is built
    run.watch.step()
    assert len(run.children) == 1 and list(run.watch.building) == ["cache"]
    run.losses.healing = {}
    run.watch.step()
    assert len(run.children) == 2  # what the file says: it may be there by now
