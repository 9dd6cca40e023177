"""The questions about rows and documents over HTTP, and the jobs that mend them: who is told what, what is refused."""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import ConfigError, KafkaUnavailable
from cdc.scratch import LOCK
from cdc.view import View
from console.cli.generations import _stage
from console.http import documents
from operations.explain.hidden import without_values
from operations.jobs.job import Job, refuse_unfit
from operations.jobs.jobs import Jobs
from operations.jobs.work import drop_letters_step, replay_step
from operations.preview import previewer
from operations.state.folder import pipeline_folder, register_of
from operations.state.verified import last_verified, note_verified, verified_generations
from operations.verify.comparison import Comparison
from operations.verify.verifier import Asked, Verifier
from tests.support.watched import World, documented, nowhere, world
from truth.placing import SEVERAL
from truth.values import exact

READ, OPERATE = "r" * 16, "o" * 16
SECRET = "4 Privet Drive"


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A server that asks for tokens."""
    nowhere(monkeypatch, tmp_path)
    with world(tmp_path, tokens={READ: "read", OPERATE: "operate"}) as made:
        yield made


def ask(made: World, path: str, token: str = OPERATE) -> Any:
    return made.browser.get(path, headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize(("path", "told"), [("/v1/letters", "letters_report"), ("/v1/letters/show", "letter_report")])
def test_letters_tell_what_rows_hold_to_who_may_operate_and_asks(
    closed: World, monkeypatch: pytest.MonkeyPatch, path: str, told: str
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(documents, told, lambda _, wanted, **more: heard.append((wanted, more["values"])) or {})
    for token, asked in ((READ, ""), (READ, "&values=1"), (OPERATE, ""), (OPERATE, "&values=1")):
        assert ask(closed, f"{path}?key=7&key=8&sink=search&cause=total{asked}", token).status_code == 200
    assert [values for _, values in heard] == [False, False, False, True]
    assert [wanted.whole for wanted, _ in heard] == [False, False, True, True]  # as a job, which may forget them
    wanted = heard[0][0]
    assert (wanted.keys, wanted.sinks, wanted.cause) == (("7", "8"), ("search",), "total")
    answer = ask(closed, f"{path}?cause=[")
    assert answer.status_code == 400 and "no regular expression" in answer.json()["error"]["what"]


def test_letters_keep_the_digits_of_what_they_show(closed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The framework's own writer refused what has more digits than a double."""
    wide = b'{"n":9007199254740993.5,"sum":12345678901234567890123}'
    monkeypatch.setattr(documents, "letter_report", lambda *_, **__: {"letters": [{"document": exact(wide)}]})
    answer = ask(closed, "/v1/letters/show?key=7&values=1")
    assert answer.status_code == 200 and wide in answer.content


def test_letters_with_kafka_away_are_a_matter_of_later(closed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise KafkaUnavailable("Kafka does not answer")

    monkeypatch.setattr(documents, "letters_report", away)
    answer = ask(closed, "/v1/letters")
    assert answer.status_code == 503 and answer.json()["error"]["transient"]


def test_an_explanation_hides_what_rows_hold(closed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = documented("explain")
    whole["held"]["document"]["street"] = SECRET
    whole["expected"] |= {"why": f"cannot cast '{SECRET}'"}
    whole["aggregates"][0]["value"] = SECRET
    whole["row_store"]["differences"][0]["sink"] = whole["expected"]["differences"][0]["expected"] = SECRET
    monkeypatch.setattr(documents, "explain_report", lambda *_, **__: whole)
    path = "/v1/explain?sink=search&key=4711"
    assert SECRET in ask(closed, f"{path}&values=1").text
    for token, asked in ((OPERATE, ""), (READ, "&values=1")):
        told = ask(closed, path + asked, token)
        assert SECRET not in told.text and "United" not in told.text
        assert told.json().keys() == whole.keys() and told.json()["rows"] == whole["rows"]
        assert told.json()["expected"]["differences"] == [{"field": "airline"}]
    assert without_values({**whole, "held": None, "row_store": None, "expected": None})["expected"] is None


def test_an_explanation_keeps_the_digits_of_what_it_shows(closed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of another process, which hands over what it has written: such a number is not pickled."""
    wide = b'{"n":9007199254740993.5,"sum":12345678901234567890123}'
    whole = documented("explain")
    whole["held"]["document"] = exact(wide)
    monkeypatch.setattr(documents, "explain_report", lambda *_, **__: whole)
    monkeypatch.setattr(documents, "_loaded", lambda _: None)
    assert wide in ask(closed, "/v1/explain?sink=search&key=4711&values=1").content
    for seen in (True, False):
        written = documents.explained(print, None, "search", "4711", None, seen)
        assert (wide in pickle.loads(pickle.dumps(written))) is seen


def test_a_preview_is_for_who_may_operate(closed: World) -> None:
    assert ask(closed, "/v1/preview?view=flight", READ).status_code == 403
    answer = ask(closed, "/v1/preview?view=flight")  # by a process of its own, whose error comes back
    assert answer.status_code == 503 and "Postgres" in answer.json()["error"]["what"]


def test_a_preview_has_every_digit(closed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process could not hand over a number of more than 64 bits, and ended without a word."""

    class Previews:
        def __init__(self, _say: Any) -> None: ...

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def report(self, *_: Any) -> dict[str, Any]:
            return {"documents": [exact(b'{"n":[1e400,12345678901234567890123]}')]}

    def apart(_request: Any, _asked: Any, step: Any, *arguments: Any) -> Any:
        return pickle.loads(pickle.dumps(step(print, "", *arguments)))

    monkeypatch.setattr(previewer, "Previewer", Previews)
    monkeypatch.setattr(documents, "_loaded", lambda _: None)
    monkeypatch.setattr(documents, "_apart", apart)
    answer = ask(closed, "/v1/preview?view=flight")
    assert answer.content == b'{"documents":[{"n":[1e400,12345678901234567890123]}]}'
    assert answer.headers["content-type"] == "application/json"


def test_a_plan_asks_the_servers(closed: World) -> None:
    assert ask(closed, "/v1/plan", READ).status_code == 503


def test_the_last_verification_is_kept_without_what_rows_hold(closed: World) -> None:
    pipeline = closed.served.pipeline
    report = documented("verify")
    shutil.rmtree(pipeline_folder(pipeline))
    note_verified(pipeline, report)
    assert last_verified(pipeline)["sinks"] == []  # there is no folder of this pipeline, and none is made
    register_of(pipeline, "cache").create("x")
    [view] = report["sinks"][0]["views"]
    view["columns"] = {"UA": [{"field": "name", "sink": SECRET, "expected": "x"}, "code"]}
    view["not_repaired"] = [{"key": "UA", "why": f"the sink refused it: 400 mapper_parsing_exception: '{SECRET}'"}]
    note_verified(pipeline, report)
    note_verified(pipeline, {**report, "at": 1.0, "sinks": [{**report["sinks"][0], "sink": "search", "views": []}]})
    told = ask(closed, "/v1/differences", READ)
    assert SECRET not in told.text
    [cache] = told.json()["sinks"]  # search was not compared: nothing is known of it
    assert cache["views"][0]["columns"] == {"UA": ["name", "code"]}
    assert cache["views"][0]["not_repaired"] == [
        {"key": "UA", "why": "the sink refused it: 400 mapper_parsing_exception: …"}
    ]
    assert (cache["equal"], cache["at"], cache["views"][0]["missing"]) == (False, report["at"], ["UA"])
    found = verified_generations(pipeline, "cache")
    known, number = found(report["sinks"][0]["generation"]), report["sinks"][0]["generation"]
    assert (known, found(number + 1)) == ({"at": report["at"], "equal": False, "sample": None}, None)
    ready = {"stage": "ready", "verified": known}
    proven = {"stage": "ready", "verified": {"at": 1.0, "equal": True, "sample": None}}
    assert (_stage(ready), _stage(proven)) == ("ready, not proven", "ready")
    (Path(str(register_of(pipeline, "cache").folder)).parent / "verified.json").write_text("[")
    assert last_verified(pipeline)["sinks"] == []


class _Compared(Verifier):
    """A comparison without servers, whose keys were not repaired for these reasons."""

    def __init__(self, asked: Asked, whys: dict[str, str]) -> None:
        self.asked, self.whys = asked, whys

    def _whole(self, *_: Any) -> Any:
        return {}

    @contextmanager
    def _settler(self, *_: Any) -> Iterator[Any]:
        yield None

    def _settled(self, _settler: Any, _build: Any, result: Comparison, _keys: Any) -> None:
        result.not_repaired = [{"key": key, "why": why} for key, why in self.whys.items()]


@pytest.mark.parametrize("values", [False, True])
def test_why_a_key_was_not_repaired_quotes_the_row_only_with_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: bool
) -> None:
    whys = {
        "1": f"the sink refused it: 400 document_parsing_exception: Preview of field's value: '{SECRET}'",
        "2": f'Spark could not compute field x: `a / b` for {{"a":"{SECRET}"}}; it has no document',
        "3": "the log does not have this row: `headwater resnapshot FILE public.t`",
        "4": f"the sink refused it: '{SECRET}'",
    }
    columns = {"4": [f"last {SEVERAL.format(2, 'public.t')}", "d"]}
    monkeypatch.setattr("operations.verify.verifier.differing_columns", lambda *_, **__: columns)
    view = View.identity(Table("public", "t", (Column("a", "int4", "int4"), Column("d", "date", "date")), ("a",)))
    (tmp_path / LOCK).touch()
    made = _Compared(Asked(repair=True, values=values), whys)._view(view, [SimpleNamespace(sink="s")], tmp_path)  # type: ignore[list-item]
    told = {one["key"]: one["why"] for one in made["s"].not_repaired}
    assert [one["column"] for one in made["s"].lossy] == ["d"]
    assert told["3"] == whys["3"] and told["4"] == f"{columns['4'][0]}: keep one of them"
    if values:
        assert (told["1"], told["2"]) == (whys["1"], whys["2"])
    else:
        assert told["1"].startswith("the sink refused it: 400 document_parsing_exception")
        assert told["2"] == "Spark could not compute field x: `a / b`" and SECRET not in str(told)


def test_letters_are_written_again_and_forgotten_as_the_verbs_do(
    closed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other process does, in this one."""
    heard: list[Any] = []
    monkeypatch.setattr("operations.letters.replay.replay_letters", lambda _, wanted, **__: heard.append(wanted))
    monkeypatch.setattr("operations.letters.dropping.drop_letters", lambda _, wanted: heard.append(wanted))
    asked = {"keys": ["7"], "since": "2h", "generation": 2}
    replay_step(print, closed.served.file, "search", asked)
    drop_letters_step(print, closed.served.file, None, {"cause": "x", "generation": None})
    first, second = heard
    assert (first.sinks, first.keys, first.generation) == (("search",), ("7",), 2)
    assert time.time() - first.since == pytest.approx(7200, abs=5)
    assert (second.sinks, second.cause, second.since) == ((), "x", None)


# -- jobs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "sink", "said", "word"),
    [
        ("pause", "search", {"keys": ["1"]}, "takes no keys"),
        ("promote", None, {}, "is of one sink"),
        ("retire", None, {}, "is of one sink"),
        ("resnapshot", "search", {"all": True}, "no sink's"),
        ("resnapshot", None, {}, "name the tables"),
        ("resnapshot", None, {"all": True, "tables": ["t"]}, "name the tables"),
        ("resnapshot", None, {"all": True, "where": "id = 1"}, "can't go with all"),
        ("verify", None, {"generation": 2}, "is of one sink"),
        ("drop-letters", "search", {"why": "x"}, "takes no why"),
        ("verify", "search", {"sample": 0}, "of 0 rows compares nothing"),
        ("repair", None, {"sample": -1}, "of -1 rows compares nothing"),
    ],
)
def test_what_a_verb_does_not_take_is_refused(closed: World, verb: Any, sink: str | None, said: Any, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        refuse_unfit(verb, sink, said)
    body = {"verb": verb, "sink": sink, **said}
    answer = closed.browser.post("/v1/jobs", json=body, headers={"Authorization": f"Bearer {OPERATE}"})
    assert answer.status_code == 400 and closed.served.jobs.newest() == []


def test_a_verb_that_is_not_there_or_a_word_that_nobody_knows_is_refused(closed: World) -> None:
    for body in ({"verb": "drop", "sink": "search"}, {"verb": "verify", "sampel": 7}):
        header = {"Authorization": f"Bearer {OPERATE}"}
        assert closed.browser.post("/v1/jobs", json=body, headers=header).status_code == 400


def test_one_of_a_kind_at_a_time() -> None:
    verify = Job("1", "verify", None)
    assert verify.hinders("repair", "search") and verify.hinders("verify", None)
    assert not verify.hinders("pause", "search") and not verify.hinders("rebuild", "search")
    retire = Job("1", "retire", "search")
    assert retire.hinders("promote", "search") and not retire.hinders("promote", "cache")
    assert not Job("1", "retire", "search", state="cut").hinders("promote", "search")


@pytest.mark.parametrize(
    ("verb", "sink", "said"),
    [
        ("verify", "cache", {"sample": 10}),
        ("resnapshot", None, {"all": True}),
    ],
)
def test_long_jobs_are_done_apart_and_their_errors_come_back(
    closed: World, verb: Any, sink: str | None, said: dict[str, Any]
) -> None:
    """Every server is away: what the verb says then is the job's error, and outlives the server."""
    body = {"verb": verb, "sink": sink, **said}
    begun = closed.browser.post("/v1/jobs", json=body, headers={"Authorization": f"Bearer {OPERATE}"})
    assert begun.status_code == 202, begun.text
    ended = closed.served.jobs.wait(closed.served.jobs.newest()[0], 60)
    assert ended.state == "failed" and ended.error is not None and ended.error["transient"], ended
    assert ended.asked == said and json.loads(json.dumps(ended.to_dict())) == begun.json() | {
        "state": "failed",
        "ended": ended.ended,
        "lines": list(ended.lines),
        "error": ended.error,
    }
    assert Jobs(lambda: closed.served.pipeline).get(ended.id) == ended
