"""`policy.alert`: who has no Prometheus is told once that something is bad, and once that it is well again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from cdc.errors import PipelineFileError
from cdc.pipeline import Pipeline, load
from connectors.wal.budget import judge
from operations.freshness.keeper import Keeper
from operations.generations import targets
from operations.metrics.pipelines import metrics
from operations.state import wal
from operations.state.folder import register_of
from operations.state.wal import Window, write_window
from operations.status import alert
from operations.status.alert import Alarms, Alerting, send
from operations.status.judgement import Judgement
from tests.support.lone_cache import FILE

WELL, BAD, OTHER = Judgement("well"), Judgement("behind", "the connector is dead", "start it"), Judgement("failed", "x")


def test_it_is_told_once_after_a_while_and_once_when_it_is_well_again() -> None:
    alarms = Alarms("shop", 60)
    said = []
    for at in range(0, 200, 10):
        state = BAD if 20 <= at < 120 else WELL
        said += [
            (at, one["event"], one["subject"]) for one in alarms.step(float(at), {"sink search": state, "source": WELL})
        ]
    assert said == [(80, "alarm", "sink search"), (120, "well", "sink search")]


def test_a_clock_that_is_put_back_does_not_keep_what_is_bad_from_being_told() -> None:
    """It was not bad for a minute before the clock had come past its beginning again."""
    alarms = Alarms("shop", 60)
    assert not alarms.step(9_000.0, {"source": BAD}) and not alarms.step(100.0, {"source": BAD})
    [said] = alarms.step(160.0, {"source": BAD})
    assert (said["event"], said["since"]) == ("alarm", 100.0)


def test_what_passes_before_that_is_not_told() -> None:
    alarms = Alarms("shop", 60)
    states = [BAD, WELL, BAD, BAD, WELL, Judgement("filling", "x")]
    assert not [one for at, state in enumerate(states) for one in alarms.step(at * 30.0, {"sink search": state})]


def test_another_kind_of_bad_is_the_same_trouble() -> None:
    alarms = Alarms("shop", 60)
    said = [alarms.step(at * 40.0, {"source": state}) for at, state in enumerate([BAD, OTHER, OTHER, BAD, WELL])]
    assert [len(one) for one in said] == [0, 0, 1, 0, 1]
    assert said[2][0]["text"] == "shop, source: failed: x"


def test_of_a_sink_that_is_gone_nothing_more_is_told() -> None:
    alarms = Alarms("shop", 0)
    assert alarms.step(0.0, {"sink search": BAD})
    assert not alarms.step(1.0, {}) and not alarms.step(2.0, {"sink search": WELL})


def test_what_an_earlier_process_has_told_is_not_told_again_and_its_end_is() -> None:
    """`failed` is cured by a new `run` alone, and an incident that it had opened stayed open for ever."""
    alarms = Alarms("shop", 60, {"sink search": 5.0}.get)
    assert not alarms.step(100.0, {"sink search": BAD, "sink other": WELL}) and not alarms.step(
        200.0, {"sink search": OTHER}
    )
    [said] = alarms.step(210.0, {"sink search": WELL})
    assert (said["event"], said["subject"], said["since"], said["at"]) == ("well", "sink search", 5.0, 210.0)
    assert not alarms.step(220.0, {"sink search": WELL})
    assert not alarms.step(230.0, {"sink search": BAD}) and alarms.step(290.0, {"sink search": BAD})  # a new one


def test_what_begins_is_no_end_of_a_trouble_that_was_told() -> None:
    """A new `run` would have told that all is well before it knows, and the same alarm a minute later."""
    alarms = Alarms("shop", 60, {"sink search": 5.0}.get)
    states = [Judgement("starting"), BAD, Judgement("starting"), WELL]
    assert [len(alarms.step(100.0 + at, {"sink search": state})) for at, state in enumerate(states)] == [0, 0, 0, 1]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return piped(tmp_path, "http://127.0.0.1:1/secret-hook")


def piped(folder: Path, url: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(
        FILE.format(folder=folder / "state") + f'policy: {{alert: {{webhook: "{url}", after_seconds: 0}}}}\n'
    )
    return load(path)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(alert, "AGAIN_SECONDS", 0.05)
    monkeypatch.setenv("NO_PROXY", "*")


def wait(true: Any) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("error", [requests.ConnectionError, OSError, ValueError])
def test_a_webhook_that_does_not_take_it_gets_it_later_and_its_address_is_never_said(
    pipeline: Pipeline, error: type[Exception]
) -> None:
    """A `REQUESTS_CA_BUNDLE` that names no file is an error of the system, and ended the thread that tells alarms."""
    said: list[str] = []
    posted: list[Mapping[str, Any]] = []
    calls = 0

    def post(url: str, message: Mapping[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise error(f"no answer from {url}")
        posted.append(message)

    with Alerting(Keeper(pipeline), said.append, post):
        wait(lambda: len(posted) == 2)
    assert sorted(one["subject"] for one in posted) == ["sink cache", "source"]
    assert posted[0]["judgement"] == "stopped" and posted[0]["event"] == "alarm"
    said = [one for one in said if "policy.alert" in one]
    assert len(said) == 2 and "is tried again" in said[0] and "again" in said[1]
    assert "secret-hook" not in "".join(said)


def test_the_webhook_is_told_of_the_wal_and_the_log_not_twice(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is idle in a transaction fills the disk while the source is well."""
    monkeypatch.setattr(alert, "LOG_AFTER_SECONDS", 0.0)
    said: list[str] = []
    posted: list[Mapping[str, Any]] = []

    def about() -> list[tuple[str, str]]:
        return [(one["event"], one["judgement"]) for one in posted if one["subject"] == "wal"]

    def weigh(retained: int) -> None:
        write_window(pipeline, Window(), judge(retained=retained, budget=1000, limit=None))

    weigh(600)
    with Alerting(Keeper(pipeline), said.append, lambda _url, message: posted.append(message)):
        wait(lambda: len(posted) == 2)
        assert about() == [], "half of it is no alarm"
        weigh(850)
        wait(lambda: about() == [("alarm", "behind")])
        with monkeypatch.context() as patch:
            patch.setattr(wal, "WEIGHED_SECONDS", -1.0)
            time.sleep(0.1)
            assert len(about()) == 1, "Postgres is away: nobody knows that it is well"
        weigh(100)
        wait(lambda: about() == [("alarm", "behind"), ("well", "well")])
    [text] = [one["text"] for one in posted if one["subject"] == "wal" and one["event"] == "alarm"]
    assert "makes Postgres keep" in text and "85 % of policy.wal_budget" in text
    assert not [line for line in said if "policy.wal_budget" in line], "the watch of the WAL has said it"


def test_another_process_tells_of_the_source(pipeline: Pipeline) -> None:
    posted: list[Mapping[str, Any]] = []
    keeper = Keeper(pipeline, ["cache"])
    with Alerting(keeper, print, lambda _url, message: posted.append(message)):
        wait(lambda: len(posted) == 2)
    assert {one["subject"] for one in posted} == {"sink cache", "source"}  # the file's first sink is here


def test_a_sink_that_is_called_source_is_told_of_beside_the_source(tmp_path: Path) -> None:
    """One of the two took the other's place: what was bad of the sink was never told."""
    path = tmp_path / "pipeline.yaml"
    webhook = 'policy: {alert: {webhook: "http://127.0.0.1:1/h", after_seconds: 0}}\n'
    path.write_text(FILE.format(folder=tmp_path / "state").replace("cache:", "source:") + webhook)
    posted: list[Mapping[str, Any]] = []
    with Alerting(Keeper(load(path)), lambda _: None, lambda _url, message: posted.append(message)):
        wait(lambda: len(posted) == 2)
    assert {one["subject"] for one in posted} == {"sink source", "source"}


@contextmanager
def hook(status: int) -> Iterator[tuple[str, list[Any]]]:
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_real_webhook_gets_json(tmp_path: Path) -> None:
    with hook(204) as (url, got), Alerting(Keeper(piped(tmp_path, url)), print):
        wait(lambda: len(got) == 2)
    assert got[0].keys() == {
        "event", "pipeline", "subject", "judgement", "cause", "remedy", "since", "at", "text"
    }  # fmt: skip


def test_no_is_no_yes() -> None:
    for status in (302, 304, 404, 500):
        with hook(status) as (url, got), pytest.raises(requests.HTTPError):
            send(url, {})
        assert len(got) == 1, "a redirect is not followed"


def test_a_redirect_has_not_taken_an_alarm_and_is_told(tmp_path: Path) -> None:
    """Whoever serves https has http answer so: the alarm counted as told, and nobody ever heard of it."""
    said: list[str] = []
    with hook(302) as (url, got), Alerting(Keeper(one := piped(tmp_path, url)), said.append):
        wait(lambda: len(got) > 1)
    assert got[0] == got[1] and not notes(one), "it is tried again, and not noted as told"
    [line] = [each for each in said if "policy.alert" in each]
    assert "302" in line and "redirects are not followed" in line and url not in line


@pytest.mark.parametrize("url", ["ftp://h/x", "hunter2", "http://"])
def test_an_address_that_is_none_is_refused_without_being_said(tmp_path: Path, url: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        piped(tmp_path, url)
    assert "webhook" in str(caught.value) and "http://host:port" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_without_a_webhook_the_log_tells_what_is_bad_for_a_minute_and_when_it_is_well_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage of minutes left no line in the log of `run`."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.format(folder=tmp_path / "state"))
    monkeypatch.setattr(alert, "CALM_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(alert, "LOG_AFTER_SECONDS", 0.2)
    said: list[str] = []
    alerting = Alerting(Keeper(load(path)), said.append, lambda *_: pytest.fail("there is no webhook"))
    with alerting:
        wait(lambda: len(said) == 2)
        assert all(one.startswith(("warning: sink cache: stopped", "warning: source: ")) for one in said)
        monkeypatch.setattr(alerting, "_look", lambda _: {"source": Judgement("well")})
        wait(lambda: len(said) == 3)
        time.sleep(0.3)
    assert said[2] == "source: well" and len(said) == 3  # told once, and a sink that is there no more needs no word


TWO = FILE.replace("view: v}}}}", 'view: v}}, other: {{type: redis, url: "redis://127.0.0.1:2", view: v}}}}')


@pytest.mark.parametrize("text", ["{broken", "[]", None])
def test_a_sink_whose_state_cant_be_read_is_told_of_and_hides_no_other(tmp_path: Path, text: str | None) -> None:
    """Nothing was told any more, of no sink: the look at all of them ended at the one."""
    path = tmp_path / "pipeline.yaml"
    hook = 'policy: {alert: {webhook: "http://127.0.0.1:1/h", after_seconds: 0}}\n'
    path.write_text(TWO.format(folder=tmp_path / "state") + hook)
    pipeline = load(path)
    register = register_of(pipeline, "cache").folder / "generations.json"
    register.parent.mkdir(parents=True)
    if text is None:
        register.mkdir()  # what can't be read for whatever reason: root may read all that is a file
    else:
        register.write_text(text)
    posted: list[Mapping[str, Any]] = []
    with Alerting(Keeper(pipeline), lambda _: None, lambda _url, message: posted.append(message)):
        wait(lambda: len(posted) == 3)
    told = {one["subject"]: one for one in posted}
    assert told.keys() == {"sink cache", "sink other", "source"} and told["sink other"]["judgement"] == "stopped"
    assert told["sink cache"]["judgement"] == "failed" and "can't be read" in told["sink cache"]["cause"]
    assert told["sink cache"]["remedy"]


def test_a_state_that_cant_be_read_is_told_to_a_scrape(pipeline: Pipeline) -> None:
    """The scrape failed, and with it that of every other pipeline of the server."""
    (register_of(pipeline, "cache").folder / "generations.json").mkdir(parents=True)
    assert 'headwater_state_readable{pipeline="p"} 0.0' in metrics([pipeline])


def alerting(pipeline: Pipeline, look: Judgement, posted: list[Mapping[str, Any]]) -> Alerting:
    """Of a process of its own, to which a sink is so and nothing else is there."""
    made = Alerting(Keeper(pipeline), lambda _: None, lambda _url, message: posted.append(message))
    made._look = lambda pipeline: {"sink cache": look}  # type: ignore[method-assign]
    return made


def notes(pipeline: Pipeline) -> list[str]:
    return sorted(path.name for path in register_of(pipeline, "cache").folder.parent.glob("alarm-*.json"))


def test_a_new_process_tells_the_end_of_what_the_one_before_has_told(pipeline: Pipeline) -> None:
    """`failed`, the operator starts `run` again as he is told to: the incident at the pager was never closed."""
    posted: list[Mapping[str, Any]] = []
    with alerting(pipeline, OTHER, posted):
        wait(lambda: notes(pipeline) == ["alarm-sink-cache.json"])
    with alerting(pipeline, BAD, posted):
        time.sleep(0.3)
    assert [one["event"] for one in posted] == ["alarm"]  # once, though it goes on
    with alerting(pipeline, WELL, posted):
        wait(lambda: not notes(pipeline))
    assert [one["event"] for one in posted] == ["alarm", "well"]
    assert posted[0]["since"] == posted[1]["since"]
    with alerting(pipeline, WELL, posted):
        time.sleep(0.3)
    assert len(posted) == 2


def test_what_no_webhook_has_taken_is_not_noted(pipeline: Pipeline) -> None:
    posted: list[Mapping[str, Any]] = []
    first = alerting(pipeline, BAD, posted)
    tried: list[str] = []

    def refuse(url: str, _: Mapping[str, Any]) -> None:
        tried.append(url)
        raise requests.ConnectionError

    first.post = refuse
    with first:
        wait(lambda: tried)
    assert not notes(pipeline)
    with alerting(pipeline, BAD, posted):
        wait(lambda: posted)


def test_another_webhook_knows_nothing_of_what_the_first_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the file without one at all begins anew: an alarm of another year must not keep the next one back."""
    posted: list[Mapping[str, Any]] = []
    for path in ("a", "b"):
        pipeline = piped(tmp_path, f"http://127.0.0.1:1/{path}")
        known = len(posted)
        with alerting(pipeline, BAD, posted):
            wait(lambda known=known: len(posted) > known)
    wait(lambda: notes(pipeline))
    assert "127.0.0.1" not in (register_of(pipeline, "cache").folder.parent / notes(pipeline)[0]).read_text()
    plain = tmp_path / "plain.yaml"
    plain.write_text(FILE.format(folder=tmp_path / "state"))
    monkeypatch.setattr(alert, "CALM_LOOK_SECONDS", 0.02)
    with alerting(load(plain), BAD, posted):
        wait(lambda: not notes(pipeline))


def test_a_sink_that_the_file_has_no_more_is_forgotten(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "drop_generation", lambda *_: None)
    folder = register_of(pipeline, "cache").folder.parent
    posted: list[Mapping[str, Any]] = []
    with alerting(pipeline, BAD, posted):
        wait(lambda: notes(pipeline))
    (folder / "alarm-sink-gone.json").write_text((folder / "alarm-sink-cache.json").read_text())
    with alerting(pipeline, BAD, posted):
        wait(lambda: notes(pipeline) == ["alarm-sink-cache.json"])
    targets.drop_sink_state(pipeline, ["cache"])
    assert not notes(pipeline)


@pytest.mark.parametrize("text", ["{broken", "[]", "{}", None])
def test_a_note_that_cant_be_read_or_written_stops_nothing(pipeline: Pipeline, text: str | None) -> None:
    folder = register_of(pipeline, "cache").folder.parent
    folder.mkdir(parents=True)
    note = folder / "alarm-sink-cache.json"
    if text is None:
        note.mkdir()  # what can neither be read nor replaced
    else:
        note.write_text(text)
    posted: list[Mapping[str, Any]] = []
    one = alerting(pipeline, BAD, posted)
    with one:
        wait(lambda: posted)
        one._look = lambda pipeline: {"sink cache": WELL}  # type: ignore[method-assign]
        wait(lambda: len(posted) == 2)
    assert [message["event"] for message in posted] == ["alarm", "well"]
