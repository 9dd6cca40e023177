"""What `plan` and `apply` say of a changed file beside a `run` that has some of its sinks, or reads its file alone."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from cdc.pipeline import loads
from operations.edits.pending import let_go, pending
from operations.plan import Plan
from operations.state.accepted import Text, hand_over, note_running, read_runs, this_process
from operations.state.folder import register_of, running_path
from spark.disk.lease import Holder
from tests.unit.operations.test_file_edits import LAKE, NEW, Files, files, filled

__all__ = ["files"]

OTHER = '  other: {type: redis, url: "redis://127.0.0.1:1", view: w, key_prefix: "o:"}\n'
CACHE = '  cache: {type: redis, url: "redis://127.0.0.1:1", view: v}\n'


def began(files: Files, text: str, *only: str) -> None:
    for sink in ("cache", "other"):
        filled(files.load(), sink)
    note_running(files.load(), this_process(Text("p.yaml", text, 2.0), only=only))


def held(files: Files, sink: str) -> None:
    """By another `run`, which the newest one's note says nothing of."""
    register_of(files.load(), sink).generation().lease._write(Holder(7, 4711, 1.0, "elsewhere", time.time()))


def told(files: Files, text: str) -> tuple[list[str], list[str]]:
    """What `plan` says of a file, and what `apply` asks about."""
    files.path.write_text(text)
    pipeline = loads(text, "p.yaml")
    found = pending(pipeline)
    assert found is not None
    return found.lines(), list(let_go(pipeline))


BESIDE = "the run that was started last does nothing about sink {} (--sink); another one that has it takes that up"


def test_a_run_of_some_sinks_is_promised_nothing_of_the_others(files: Files) -> None:
    old = files.text()
    began(files, old, "cache")
    assert told(files, old) == ([], [])
    new = files.text(more=NEW).replace("w: {root: w}", "w: {root: w, columns: [id]}")
    assert told(files, new) == ([BESIDE.format("other"), BESIDE.format("third")], [])
    lines, _ = told(files, files.text(column="title"))
    assert len(lines) == 1 and lines[0].startswith("run builds the next generation of sink cache")


def test_nobody_is_asked_about_a_sink_that_nobody_runs(files: Files) -> None:
    began(files, files.text(), "cache")
    without = files.text().replace(OTHER, "")
    assert told(files, without) == ([BESIDE.format("other")], [])
    lines, asked = told(files, files.text().replace(CACHE, ""))
    assert "must be started again for sinks (cache, which it was started for, is gone)" in lines[0] and not asked


def test_a_run_of_a_sink_that_was_started_before_the_newest_lets_go_of_it_only_if_asked(files: Files) -> None:
    """Only the newest has a note; the other takes up the file as well."""
    began(files, files.text(), "cache")
    held(files, "other")
    assert told(files, files.text().replace(OTHER, ""))[1] == ["other"]


@pytest.mark.parametrize("note", ["of a dead one", "none", "of a file without it"])
def test_so_it_is_where_the_newest_is_dead_or_went_by_another_file(files: Files, note: str) -> None:
    """It was let go unasked, as there was nobody to be heard of."""
    began(files, files.text(), "cache")
    held(files, "other")
    without = files.text().replace(OTHER, "")
    [running] = read_runs(files.load())
    if note == "of a dead one":
        note_running(files.load(), replace(running, pid=2**22 + 1))
    else:
        hand_over(files.load(), Text("p.yaml", files.text(), 1.0))
    if note == "none":
        running_path(files.load(), ["cache"]).unlink()
    if note == "of a file without it":
        note_running(files.load(), replace(running, taken=Text("p.yaml", without, 2.0)))
    files.path.write_text(without)
    assert list(let_go(loads(without, "p.yaml"))) == ["other"]
    register_of(files.load(), "other").generation().lease._write(Holder(7, 0, 1.0, "elsewhere", time.time()))
    assert list(let_go(loads(without, "p.yaml"))) == [], "nobody has it any more"


def test_what_another_run_does_for_its_sink_is_told(files: Files) -> None:
    """`plan` said that nothing is done about it, then `nothing to change`, and ended with 2."""
    began(files, files.text(more=LAKE), "cache")
    filled(files.load(more=LAKE), "lake")
    for sink in ("other", "lake"):
        held(files, sink)
    new = files.text(more=LAKE.replace("/c.db", "/d.db")).replace(OTHER, OTHER.replace("127.0.0.1:1", "127.0.0.1:2"))
    lines, _ = told(files, new)
    again = "another run must be started again for sinks.lake.catalog_uri: until then it goes on with the old file"
    anew = "as the file has it and its tables: what it keeps stands still meanwhile"
    assert lines == [f"another run opens sink other anew, {anew}", again]
    found = pending(loads(new, "p.yaml"))
    assert found is not None and found.taken() == 1 and found.to_dict()["beside"]["lake"]["restart"]
    assert Plan("p", [], [], [], found).closing("f") == "1 change; `headwater apply f` makes it"
    built = pending(loads(files.text(more=LAKE).replace("w: {root: w}", "w: {root: w, columns: [id]}"), "p.yaml"))
    needs = {"sink": "other", "generation": 1, "because": ["a"], "gone_back_from": None, "documents": None}
    plan = Plan("p", [], [{**needs, "bytes": None, "row_store_bytes": None}], [], built)
    assert plan.lines("f")[0].endswith("`run` builds it once the file is applied") and plan.asked() == []
    nobody = pending(files.load(more=f"{LAKE}\n{NEW}"))
    assert Plan("p", [], [], [], nobody).closing("f") == "`headwater apply f` hands the file on"


def test_a_run_of_two_sinks_is_asked_about_its_own(files: Files) -> None:
    began(files, files.text(), "cache", "other")
    lines, asked = told(files, files.text().replace(OTHER, ""))
    assert lines == ["run lets go of sink other; what it holds stays"] and asked == ["other"]


def test_what_only_another_run_must_be_started_again_for_hides_no_question(files: Files) -> None:
    began(files, files.text(more=LAKE), "cache", "other")
    new = files.text(more=LAKE.replace("/c.db", "/d.db")).replace(OTHER, "")
    lines, asked = told(files, new)
    assert lines == ["run lets go of sink other; what it holds stays", BESIDE.format("lake")] and asked == ["other"]


AUDIT = '  audit: {type: redis, url: "${AUDIT_URL}", view: w, key_prefix: "a:"}'


def test_a_file_that_can_not_be_read_here_is_no_unchanged_one(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was: `plan` ended with 0, and `apply` had the sink let go unasked."""
    began(files, files.text(more=AUDIT))
    monkeypatch.delenv("AUDIT_URL", raising=False)
    new = files.text(column="title")
    [said], asked = told(files, new)
    assert "can't be read here" in said and "environment variable AUDIT_URL is not set" in said and asked == ["audit"]
    found = pending(files.load(column="title"))
    plan = Plan("p", [], [], [], found)
    assert plan.asked() == [said] and plan.closing("f") == "`headwater apply f` hands the file on"
    assert plan.to_dict()["run"]["unread"]
    monkeypatch.setenv("AUDIT_URL", "redis://127.0.0.1:1")
    lines, asked = told(files, new)
    assert lines[0] == "run lets go of sink audit; what it holds stays" and len(lines) == 2 and asked == ["audit"]


@pytest.mark.parametrize(("only", "asked"), [("audit", ["audit"]), ("cache", [])])
def test_so_is_one_of_a_run_of_some_sinks(
    files: Files, monkeypatch: pytest.MonkeyPatch, only: str, asked: list[str]
) -> None:
    began(files, files.text(more=AUDIT), only)
    monkeypatch.delenv("AUDIT_URL", raising=False)
    assert told(files, files.text())[1] == asked
