"""docs/json-output.md shows the keys that `--json` really has."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from cdc.catalogue import Catalogue, Column, Table
from cdc.join.rows import Stamp
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.log.letter_log import LetterLog
from cdc.pipeline import Source, Webhook, load
from cdc.view import View
from connectors.actions import Action
from connectors.preflight import CHECKS, Answer, Finding, Level
from connectors.survey import LeftOut, Survey
from connectors.tables.foreign_keys import ForeignKey, Sizes
from console.cli.check import to_dict
from console.cli.main import cli
from deploy.local.stack import ServiceState
from operations.check.sinks import CLASSES, INDICES, SINKS
from operations.check.warehouses import WAREHOUSE
from operations.check.webhooks import WEBHOOK
from operations.edits.changes import Changes
from operations.erase.eraser import Eraser, Options
from operations.erase.places import Place
from operations.erase.subject import Subject
from operations.explain import report as explained
from operations.explain.differences import Difference
from operations.held import Found
from operations.letters import listing as listed
from operations.letters.found import FoundLetters
from operations.letters.listing import causes, head
from operations.letters.replay import Replay
from operations.letters.replay import _told as _left
from operations.preview.diff import _difference
from operations.propose import proposal as proposed
from operations.propose.proposal import Looked
from operations.push.health import push_report
from operations.query.answer import Answer as QueryAnswer
from operations.query.answer import Told
from operations.query.complete import AsOf
from operations.query.duck import Rows
from operations.query.tables import Held, Name
from operations.query.tail import Tail
from operations.standing.note import MatcherNote
from operations.state.folder import note_captured, register_of
from operations.status.facts import judged
from operations.status.judgement import BAD, JUDGEMENTS
from operations.status.sinks import STATES, _flow, _flow_judged, _sink, source_judged, status_report, with_judgement
from operations.status.source import SourceState
from operations.testing import report as tested
from operations.testing.cases import Case, Expected, Result, Wrong
from operations.verify.comparison import Comparison
from spark.join.explain import Explained, Row, Total
from tests.support.json_examples import PAGE, ROOT, example, flights
from tests.support.lone_cache import written

UNITED = {"name": "United"}


def test_status(tmp_path: Path) -> None:
    pipeline = flights(tmp_path)
    [sink] = example("status")["sinks"]
    report = judged(pipeline)
    source = {**SourceState(pipeline).report(), **source_judged(report)}
    assert example("status")["source"].keys() == source.keys()
    hook = {"view": "plane", "url": "http://127.0.0.1:1", "secret": "whsec_" + "a" * 40, "sink": "cache"}
    hooked = pipeline.model_copy(update={"push": {"departures": Webhook.model_validate(hook)}})
    assert example("status")["push"][0].keys() == push_report(hooked)[0].keys()
    assert example("status")["standing"][0].keys() == {"view", "working", *asdict(MatcherNote())}
    assert example("status").keys() == status_report(pipeline).keys()
    told = with_judgement(_sink(pipeline, "search", None), report.sinks["search"])
    assert sink.keys() == told.keys()
    assert sink["generations"][0].keys() == told["generations"][0].keys()
    flow = _flow_judged(_flow(register_of(pipeline, "search").generation(), "main", None), None)
    assert sink["flows"][0].keys() == flow.keys()


def test_every_judgement_is_named() -> None:
    [row] = re.findall(r"^\| `judgement`, `cause`, `remedy` .*$", PAGE, flags=re.MULTILINE)
    assert set(re.findall(r"`([a-z]+)`", row.partition("One of")[2])) == set(JUDGEMENTS)
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("### How a sink is")[2]
    table = dict(re.findall(r"^\| `([a-z]+)` \| .* \| (yes)? ?\|$", page.partition("The limit is")[0], re.MULTILINE))
    assert set(table) == set(JUDGEMENTS)
    assert {name for name, alarm in table.items() if alarm} == BAD


def test_every_state_is_named() -> None:
    [named] = re.findall(r"^\| `sinks\[\].state` .*$", PAGE, flags=re.MULTILINE)
    assert set(STATES) < set(re.findall(r"`([a-z ]+)`", named))


def test_explain(tmp_path: Path) -> None:
    """The parts; the whole is looked at in tests/integration/test_explain.py."""
    shown, pipeline = example("explain"), flights(tmp_path)
    assert (
        shown["rows"][0].keys() == explained._row(pipeline, Row("v", "public.t", "1", "shown", Stamp(1, 2, 3))).keys()
    )
    assert shown["aggregates"][0].keys() == explained._total(Total("v.n", "public.t", 1, 1, known=True)).keys()
    view = View.identity(Table("public", "t", (Column("a", "int4", "int4"),), ("a",)))
    held = explained._held(view, Found(5, {"a": 1}))
    assert held is not None and shown["held"].keys() == held.keys()
    assert shown["held"] | explained._position(shown["held"]["version"]) == shown["held"] | {"position": 748903240}
    assert shown["row_store"].keys() == explained._row_store(view, Found(), Explained(None)).keys()
    assert shown["row_store"]["differences"] == [Difference(("airline",), None, UNITED).to_dict("sink", "row_store")]
    assert shown["expected"]["differences"] == [Difference(("airline",), None, UNITED).to_dict("sink", "expected")]


def test_verify() -> None:
    [view] = example("verify")["sinks"][0]["views"]
    assert view.keys() == {*asdict(Comparison("v")), "equal"}


@pytest.mark.parametrize("verb", ["plan", "drop"])
def test_changes(verb: str) -> None:
    assert example(verb)["changes"][0].keys() == Action("topic", "t", "create").to_dict().keys()


def test_check() -> None:
    finding = Finding(Level.NOTE, "about", "message")
    told = to_dict(Answer(CHECKS[0], (finding,)))
    [shown] = example("check")["checks"]
    assert shown.keys() == told.keys()
    assert shown["findings"][0].keys() == told["findings"][0].keys()  # type: ignore[index]


def test_every_check_is_named() -> None:
    named = PAGE.partition("Checks: ")[2].partition("\n## ")[0]
    ours = (SINKS, INDICES, CLASSES, WAREHOUSE, WEBHOOK)
    assert sorted(re.findall(r"`([\w-]+)`", named)) == sorted(check.name for check in (*CHECKS, *ours))


def test_ps() -> None:
    assert list(example("ps")["services"][0]) == [field.name for field in fields(ServiceState)]


def test_init() -> None:
    shown = example("init")
    source = Source(database="shop", user="own", tables=("public.any",))
    key = ForeignKey("public.b", "public.a", ("a_id",), ("id",))
    tables = {
        name: Table("public", name[-1], (Column("id", "int4", "int4"), Column("a_id", "int4", "int4")), ("id",))
        for name in ("public.a", "public.b")
    }
    left_out = (LeftOut("public.c", "why"),)
    found = Survey(tables, {}, left_out, (), (key,), Sizes({}, {}), {}, {}, "own", "logical")
    told = proposed.report(proposed.draft(Looked(source, found, frozenset(), "own"), name=None, sinks=("redis",)), "f")
    assert shown.keys() == told.keys()
    for part in ("tables", "views", "left_out"):
        assert shown[part][0].keys() == told[part][0].keys()


def test_a_difference_of_a_preview() -> None:
    [one] = example("preview --diff")["documents"]
    told = _difference("42", {"a": 1}, {"a": 1, "b": 2}, "", behind=False)
    assert one.keys() == told.keys()
    assert one["fields"][0].keys() == told["fields"][0].keys()


def test_pause(tmp_path: Path) -> None:
    file = written(tmp_path)
    note_captured(load(file))
    said = CliRunner().invoke(cli, ["pause", str(file), "cache", "--json"], catch_exceptions=False).output
    assert json.loads(said).keys() == example("pause, resume").keys()


def test_plan_tells_what_run_will_do() -> None:
    assert example("plan")["run"].keys() == Changes().to_dict().keys()


def test_test(tmp_path: Path) -> None:
    case = Case(tmp_path, 12, "t", (), ())
    wrong = Wrong(Expected("v", "7", {}, None, 20), "a", 1, 2)
    told = tested._told(Result(case, [wrong]))
    [shown] = example("test")["tests"]
    assert shown.keys() == told.keys() and shown["differences"][0].keys() == told["differences"][0].keys()


def test_letters(tmp_path: Path) -> None:
    pipeline, one = flights(tmp_path), Logged(DeadLetter("search", "flight", "4711", 748903240, "no"), 0)
    found = FoundLetters(cast(LetterLog, SimpleNamespace(whole=lambda at: None)), {b"k": one})
    top = head(pipeline, found)
    shown = {verb: example(f"letters {verb}") for verb in ("list", "show", "replay", "drop")}
    assert shown["list"].keys() == {*top, "causes", "letters"}
    assert shown["drop"].keys() == {*top, "causes", "dropped"} and shown["show"].keys() == {*top, "letters"}
    assert shown["list"]["causes"][0].keys() == shown["drop"]["causes"][0].keys() == causes(found)[0].keys()
    told = listed.told(pipeline, one, values=False)
    assert shown["list"]["letters"][0].keys() == told.keys()
    assert shown["list"]["letters"][0]["lsn"] == told["lsn"]
    one_shown = listed._shown(pipeline, found.log, one, {}, values=False)
    assert shown["show"]["letters"][0].keys() == one_shown.keys()
    assert shown["show"]["letters"][0]["record"].keys() == one_shown["record"].keys()
    replayed = Replay(left=[_left(one.letter, "no")]).to_dict(pipeline, values=False)
    assert shown["replay"].keys() == replayed.keys() and shown["replay"]["why"][0].keys() == replayed["why"][0].keys()


def test_erase(tmp_path: Path) -> None:
    place = Place("history", "shop.customers_history", "warehouse", found=3)
    subject = Subject(flights(tmp_path), cast(Catalogue, None), Table("public", "t", (), ()), "1", print)
    report = Eraser(subject, Options())._told([place], [], [])
    shown = example("erase")
    assert shown.keys() == report.keys() and shown["places"][0].keys() == report["places"][0].keys()


def test_query() -> None:
    held = Held(Name("warehouse", "flight"), 1, "", 5, 1795239555104, (), {}, 0, cast(Any, None))
    told = Told(held, AsOf(0x16_B374D848), Tail(cast(Any, SimpleNamespace(num_rows=9)), 12, 0))
    answer = QueryAnswer(Rows([("carrier", "VARCHAR")], [("UA",)], False), True, [told], told.as_of, 0.2).to_dict(
        "flights"
    )
    shown = example("query")
    assert shown.keys() == answer.keys() and shown["as_of"] == answer["as_of"]
    [table], [shown_table] = answer["tables"], shown["tables"]
    assert shown_table.keys() == table.keys() and shown_table["tail"] == table["tail"]
    assert shown["columns"][0] == answer["columns"][0]
    assert (
        QueryAnswer(Rows([], [], False), False, [Told(held, AsOf(1))], AsOf(1), 0).to_dict("f")["tables"][0]["tail"]
        is None
    )
