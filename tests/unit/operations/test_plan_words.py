"""What `plan` says of a file while a `run` is alive: once, and who does it."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue
from connectors.actions import Action
from connectors.apply import Result
from console.cli.apply import command as apply_command
from console.cli.plan import DIFFERENCES, command, show_migration
from operations.edits.changes import Changes
from operations.edits.pending import under_way
from operations.plan import Plan
from operations.state.accepted import Text, note_running, this_process
from operations.state.evolution import Evolution, Todo, write_evolution
from tests.unit.operations.test_file_edits import NEW, Files, files

__all__ = ["files"]

NEEDED = {"sink": "search", "generation": 1, "because": ["views.card changed"], "documents": 9, "minutes": 1.0}
SEARCH: dict[str, Any] = {**NEEDED, "gone_back_from": None, "bytes": None, "row_store_bytes": None}
BACK = Changes(gone_back={"search": 2})
REBUILT = Changes(rebuilt={"search": ["views.card changed"]})
RESTART = Changes(restart=("policy.truncate",))
AGAIN = "run must be started again for policy.truncate: until then it goes on with the old file"
TABLE = Action("publication", "p", "add public.new")


@pytest.mark.parametrize(
    ("plan", "lines", "closing"),
    [
        (Plan("p", [], [SEARCH], [], None), ["`headwater rebuild f search`"], ""),
        (
            Plan("p", [], [SEARCH], [], REBUILT),
            ["`run` builds it once the file is applied"],
            "1 change; `headwater apply f` makes it",
        ),
        (Plan("p", [], [SEARCH], [], REBUILT, {"search"}), ["`run` is building it"], ""),
        (
            Plan("p", [], [{**SEARCH, "gone_back_from": 2}], [], BACK),
            ["promote f search --generation 2` shows it again, `headwater rebuild f search` makes another one"],
            "",
        ),
        (
            Plan("p", [TABLE], [SEARCH], [], Changes(added=("more",), rebuilt=REBUILT.rebuilt)),
            ["`run` builds it once the file is applied", "run takes up sink more"],
            "3 changes; `headwater apply f` makes them",
        ),
        (Plan("p", [TABLE], [], [], Changes()), [], "1 change; `headwater apply f` makes it"),
        (
            Plan("p", [TABLE], [], [], Changes(), (), {"public.new"}),
            [],
            "1 change; `run` is making it: it takes up public.new",
        ),
        # `plan` counted two, `apply` the one that it had made.
        (Plan("p", [TABLE], [], [], RESTART), [AGAIN], "1 change; `headwater apply f` makes it"),
        (Plan("p", [], [], [], RESTART), [AGAIN], "`headwater apply f` hands the file on"),
        (Plan("p", [], [], [], Changes(), (), {"public.new"}), [], "nothing to change"),
        (Plan("p", [], [], [], Changes(), evolving=[{"table": "public.new"}]), [], ""),
        (Plan("p", [], [], [], None, mending={"public.t": "was dropped and made again"}), [], ""),
    ],
)
def test_nothing_is_told_twice_and_who_does_it_is(plan: Plan, lines: list[str], closing: str) -> None:
    found = [*plan.lines("f"), *plan.asked()]
    assert [said.endswith(end) for said, end in zip(found, lines, strict=True)] == [True] * len(lines), found
    assert plan.closing("f") == closing


def test_what_a_migration_asks_of_the_file_stands_behind_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    view = {"sink": "search", "generation": 1, "view": "v", "why": ["column a was dropped"], "documents": 0}
    asks = {"verdict": "in place", "stands_with": [], "asks": ["take `a` out of `mapping:`"]}
    plain = {"verdict": "in place", "stands_with": [], "asks": []}
    views = [view | asks, view | plain]
    show_migration({"table": "t", "changes": ["x"], "views": views, "rebuilt": {}, "read": None})
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("view v: ")[2] for line in lines[1:]] == [
        "in place (take `a` out of `mapping:`)",
        "in place",
    ]


def test_help_applies_only_where_there_are_changes() -> None:
    """`plan || apply` applies after an error of `plan`, too, whose exit code is 1."""
    lines = [line for line in (command.epilog or "").splitlines() if "headwater apply" in line]
    condition = f"{{ [ $? -eq {DIFFERENCES} ] && headwater apply pipeline.yaml; }}"
    assert lines == [f"  headwater plan pipeline.yaml || {condition}"]


def test_what_run_does_already(files: Files) -> None:
    pipeline = files.load()
    new = {"public.new": Todo(("the table is new",), 1.0, capture=True, new=True)}
    waits = {"public.other": Todo(("column a was dropped",), 1.0, capture=True, waits=True)}
    write_evolution(pipeline, "other", Evolution(todo={**new, **waits}))
    assert under_way(pipeline) == (set(), set())  # nobody runs it
    note_running(pipeline, this_process(Text("p.yaml", files.text(), 2.0), building=("cache",)))
    assert under_way(pipeline) == ({"cache"}, {"public.new"})
    assert under_way(files.load(more=NEW)) == ({"cache"}, {"public.new"})
    assert under_way(files.load(column="title")) == (set(), set())  # it builds what the file of before says


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (None, "1 change made"),
        (RESTART, "1 change made"),
        (Changes(added=("more", "other")), "1 change made, 2 handed to `run`"),
        (Changes(gone_back={"cache": 2}), "1 change made"),
        (Changes(rebuilt={"cache": ["view"], "other": ["view"]}), "1 change made, 1 handed to `run`"),
    ],
)
def test_apply_counts_what_plan_has_counted(
    files: Files, monkeypatch: pytest.MonkeyPatch, edits: Changes | None, said: str
) -> None:
    for name, answer in {
        "operations.gate.refuse_wrong_views": None,
        "operations.edits.pending.pending": edits,
        "operations.edits.pending.let_go": [],
        "operations.edits.pending.under_way": ({"cache"}, set()),
        "operations.schema.migrations.let_through": None,
        "connectors.apply.apply": Result([TABLE], Catalogue(), fresh=False),
    }.items():
        monkeypatch.setattr(name, lambda *_, answer=answer, **__: answer)
    done = CliRunner().invoke(apply_command, [str(files.path)], catch_exceptions=False)
    assert done.output.splitlines()[-1] == said
    planned = Plan("p", [TABLE], [], [], edits, {"cache"}).closing("f")
    assert planned.startswith(
        "2 changes;" if "1 handed" in said else "3 changes;" if "2 handed" in said else "1 change;"
    )
