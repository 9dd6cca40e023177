"""What a webhook is sent, how it is signed, and what becomes of its answers: without a server."""

from __future__ import annotations

import json
import socket
import time
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import redis

from cdc.errors import ConfigError, HeadwaterError, PipelineFileError, SinkUnavailable
from cdc.pipeline import load
from console.cli.status import push_line
from operations.check.webhooks import checked_webhooks
from operations.metrics.pipelines import metrics
from operations.push import events as told
from operations.push.cursor import Cursor
from operations.push.delivery import Sending
from operations.push.envelope import BODY_BYTES, Batch, batch_of, cut
from operations.push.events import Told
from operations.push.health import Health, push_report, write_note
from operations.push.letters import WantedLetters, drop_refused, list_letters, send_letters
from operations.push.signing import signed
from operations.push.source import Source
from operations.push.verdict import MOST_ASKED_SECONDS, MOST_SECONDS, asked, verdict
from operations.push.webhooks import Webhooks
from operations.push.writing import records
from operations.state.folder import note_captured
from operations.state.pausing import pause, resume
from sinks.redis.stream.hooks import Refused

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FILE = """
version: 1
name: hooked
source: {{host: 127.0.0.1, port: 1, database: x, user: y, password: z, tables: [public.t]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{thing: {{root: t}}, other: {{root: t}}}}
sinks:
  kept: {{type: redis, url: "redis://127.0.0.1:1/0", view: thing, changes: {{}}}}
  bare: {{type: redis, url: "redis://127.0.0.1:1/1", view: other}}
push: {{hook: {hook}}}
engine: {{state_dir: {folder}/state}}
"""
PLAIN = {"view": "thing", "url": "http://127.0.0.1:1/in", "secret": SECRET}


def file_of(folder: Path, **hook: object) -> Path:
    path = folder / "hooked.yaml"
    path.write_text(FILE.format(hook=json.dumps({**PLAIN, **hook}), folder=folder))
    return path


def events(count: int, size: int = 10) -> list[Told]:
    return [Told("change", b'"%s"' % (b"x" * size), Cursor(1, "0" * 16, b"%d-0" % n).text()) for n in range(count)]


def test_the_signature_of_the_published_example() -> None:
    """https://github.com/standard-webhooks/standard-webhooks: the vector that its libraries are tested with."""
    headers = signed(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_an_answer_of_2xx_is_taken_and_a_lasting_no_is_put_aside() -> None:
    assert {verdict(status).done for status in (200, 201, 204, 299)} == {"delivered"}
    assert {verdict(status).done for status in (400, 401, 403, 404, 410, 413, 422)} == {"refused"}
    passing = (None, 100, 301, 302, 307, 408, 425, 429, 500, 502, 503, 504, 599)
    assert {verdict(status, "gone").done for status in passing} == {"again"}
    assert "redirects are not followed" in verdict(302).why


def test_pauses_grow_are_bounded_and_differ() -> None:
    longest = [verdict(500, attempt=attempt, chance=lambda: 1.0).seconds for attempt in range(12)]
    assert longest[:4] == [0.5, 1.0, 2.0, 4.0] and set(longest[7:]) == {MOST_SECONDS}
    assert verdict(500, attempt=10_000, chance=lambda: 0.0).seconds == MOST_SECONDS / 2
    assert verdict(503, retry_after="7", chance=lambda: 0.0).seconds == 7
    assert verdict(503, retry_after="0", chance=lambda: 0.0).seconds == 0.25
    assert verdict(429, retry_after="999999999").seconds == MOST_ASKED_SECONDS


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(None, 0), ("12", 12), (" 3 ", 3), ("-1", 0), ("soon", 0), ("9" * 400, 999_999_999), (formatdate(1_000), 0)],
)
def test_what_a_receiver_asks_for(said: str | None, seconds: float) -> None:
    assert asked(said) == seconds


def test_a_date_is_asked_for() -> None:
    assert asked(formatdate(2_000_000_060, usegmt=True), lambda: 2_000_000_000.0) == 60


def test_a_batch_is_bounded_and_comes_about_again() -> None:
    some = events(10)
    first = cut(some, 4)
    assert [one.cursor for one in first.events] == [one.cursor for one in some[:4]] and first.cursor == some[3].cursor
    assert cut(some, 9, first.cursor).message("a") == first.message("a"), "the same id, whatever has come since"
    assert cut(some, 9).message("a") != first.message("a") != first.message("b")
    assert len(cut(events(10, BODY_BYTES // 3), 10).events) == 2
    assert len(cut(events(2, BODY_BYTES * 2), 10).events) == 1, "a large one goes alone"
    assert len(cut(some, 4, "an end that is not there").events) == 4
    large = cut(some, 4)
    assert cut(some, 2, large.cursor).message("a") == large.message("a"), "also where `batch` is less by now"


@pytest.mark.parametrize("size", [2_000, 2_010, 2_070, BODY_BYTES // 2, BODY_BYTES * 2])
def test_a_batch_of_many_events_is_measured_as_it_is_sent(size: int) -> None:
    """500 of 2 KiB were 40 KiB more than a letter keeps: it was there without its events."""
    some = events(501, size)
    for most in (1, 100, 500):
        batch = cut(some, most)
        count = len(batch.events)
        assert len(batch.body) <= BODY_BYTES or count == 1
        assert count == most or len(Batch(some[: count + 1], None).body) > BODY_BYTES, "as many as there is room for"
    assert [one["cursor"] for one in json.loads(batch.body)] == [one.cursor for one in some[:count]]


def test_the_body_is_a_list_of_events() -> None:
    body = json.loads(cut([told.reset("why"), *events(1)], 10).body)
    assert [one["event"] for one in body] == ["reset", "change"] and body[0] == {
        "event": "reset",
        "data": {"why": "why"},
        "cursor": None,
    }


def test_a_body_that_was_kept_is_the_same_batch_again_with_all_digits() -> None:
    documents = (
        b'{"documents":[{"key":"a","version":"1","document":{"n":1.10000000000000000000001,"data":"}]\\u00e9"}}]}'
    )
    batch = cut([told.reset("a \u2028 b"), Told("snapshot", documents), *events(2)], 10)
    assert batch_of(batch.body) == batch and batch_of(batch.body).body == batch.body
    for wrong in (b"", b"[]", b"{}", b"nothing", b'[{"event":"change"}]'):
        with pytest.raises(ValueError, match=r"."):
            batch_of(wrong)


def test_a_batch_as_records_of_a_topic() -> None:
    match = Told("match", b'{"key":"a","queries":{"q":"left"},"n":1.10}', "c1")
    both = b'{"documents":[{"key":"a","queries":["q"]},{"key":"b","queries":["q"]}]}'
    batch = cut([told.reset("why"), Told("snapshot", both), match], 10)
    found = list(records(batch, "msg_1"))
    assert [(one.id, one.key) for one in found] == [
        ("msg_1.0", b""), ("msg_1.1.0", b"a"), ("msg_1.1.1", b"b"), ("c1", b"a")
    ]  # fmt: skip
    assert found[3].value == b'{"event":"match","data":' + match.data + b',"cursor":"c1"}'
    assert json.loads(found[2].value) == {"event": "snapshot", "data": {"key": "b", "queries": ["q"]}, "cursor": None}


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ({"url": "ftp://x/y"}, "http"),
        ({"secret": "whsec_c2hvcnQ="}, "24 to 64 bytes"),
        ({"secret": "not base64!"}, "24 to 64 bytes"),
        ({"filter": "a =="}, "no JMESPath at character 5"),
        ({"batch": 501}, "500"),
        ({"view": "thong"}, "thing"),
        ({"sink": "bare"}, "keeps no changes"),
        ({"sink": "cept"}, "kept"),
        ({"view": "other"}, "has no view"),
        ({"from": "yesterday"}, "from"),
    ],
)
def test_what_the_file_may_not_say(tmp_path: Path, hook: dict[str, object], words: str) -> None:
    with pytest.raises(PipelineFileError) as raised:
        load(file_of(tmp_path, **hook))
    assert words in str(raised.value) and "push" in str(raised.value)
    assert "c2hvcnQ" not in str(raised.value), "a secret is not printed"


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    pipeline = load(file_of(tmp_path))
    assert "127.0.0.1:1/in" not in pipeline.model_dump_json() + repr(pipeline)
    assert SECRET not in pipeline.model_dump_json() + repr(pipeline)


def test_the_note_of_a_process_that_is_gone_says_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = load(file_of(tmp_path))
    [never] = push_report(pipeline)
    assert never["state"] == "stopped" and never["sink"] == "kept"
    write_note(pipeline, "hook", Health("failing", 7, 1.0, 3, 1, 2.0, "it answers 500"))
    [now] = push_report(pipeline)
    assert (now["state"], now["lag_entries"], now["letters"], now["why"]) == ("failing", 7, 1, "it answers 500")
    with monkeypatch.context() as patch:  # it was said before the clock was put back
        patch.setattr("operations.push.health.time", SimpleNamespace(time=lambda: time.time() + 3_600))
        write_note(pipeline, "hook", Health("failing", 7, 1.0, 3, 1, 2.0, "it answers 500"))
    assert [one["state"] for one in push_report(pipeline)] == ["stopped"]
    monkeypatch.setattr("operations.push.health.STALE_SECONDS", -1.0)
    [later] = push_report(pipeline)
    assert later["state"] == "stopped" and later["why"] == "it answers 500"


def test_what_was_counted_before_a_restart_is_not_counted_from_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By N -> 0 -> N a counter has grown by N: an alarm of refused events after each deploy."""
    monkeypatch.setattr("operations.push.webhooks.Sender", Slow)
    monkeypatch.setattr(Slow, "all", [])
    pipeline = load(file_of(tmp_path))
    write_note(pipeline, "hook", Health("delivering", 0, 1.0, 30, 4))
    found = Webhooks(lambda: (pipeline, {"kept"}), print)
    found._look()
    assert "headwater_push_letters_total{" not in metrics([pipeline])
    [begun] = push_report(pipeline)
    assert (begun["events"], begun["letters"]) == (None, None) and "refused" not in push_line(begun)
    Slow.all[0].health.take_over({"events": "30", "letters": "4"})
    found._look()
    assert 'headwater_push_letters_total{pipeline="hooked",webhook="hook"} 4.0' in metrics([pipeline])


@pytest.mark.parametrize("readable", [True, False])
def test_nobody_is_alarmed_of_a_paused_sinks_webhooks(tmp_path: Path, *, readable: bool) -> None:
    pipeline = load(file_of(tmp_path))
    assert 'headwater_push_well{pipeline="hooked",webhook="hook"} 0.0' in metrics([pipeline])
    note_captured(pipeline)
    pause(pipeline, "kept", "maintenance", lambda _: None)  # nobody is to send
    if not readable:
        (tmp_path / "state/hooked/kept/paused.json").write_text("{")
    assert push_report(pipeline)[0]["state"] == "paused"
    assert "headwater_push_well{" not in metrics([pipeline])
    resume(pipeline, "kept")
    assert 'headwater_push_well{pipeline="hooked",webhook="hook"} 0.0' in metrics([pipeline])


def test_status_says_what_it_is_that_takes_nothing() -> None:
    plain = {"view": "order", "state": "failing", "lag_entries": None, "delivered_at": None, "letters": 2}
    hook = {**plain, "failing_since": None, "why": None}
    lines = [push_line({**hook, "name": name, "to": to}) for name, to in (("a", "webhook"), ("b", "topic"))]
    lines.append(push_line({**hook, "name": "queries.thing", "to": "search"}))
    said = "(order): failing, ? behind, nothing taken yet, 2 refused"
    assert lines == [f"webhook a {said}", f"topic b {said}", f"queries of thing {said}"]


def test_check_says_whether_anybody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        [answer] = checked_webhooks(load(file_of(tmp_path, url=f"http://127.0.0.1:{port}/in?key=hidden")))
        assert answer.state == "ok"
    [answer] = checked_webhooks(load(file_of(tmp_path, url=f"http://127.0.0.1:{port}/in?key=hidden")))
    assert answer.state == "warning" and str(port) in answer.findings[0].message
    assert "hidden" not in str(answer.findings)


@pytest.mark.parametrize("verb", ["list", "send", "drop"])
@pytest.mark.parametrize(
    ("error", "means"),
    [(redis.ConnectionError("gone"), SinkUnavailable), (redis.ResponseError("NOPERM no rights"), ConfigError)],
)
def test_a_redis_that_goes_away_among_its_letters_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception, means: type[HeadwaterError]
) -> None:
    """It is asked for the letters, answers, and is away as they are forgotten."""

    def away(*_: object) -> int:
        raise error

    pipeline = load(file_of(tmp_path))
    letters = [Refused(b"1-0", "hook", "msg_1", 1.0, "it answers 400", 1, b"[]")]
    monkeypatch.setattr(Source, "letters", away if verb == "list" else lambda _self: letters)
    monkeypatch.setattr(Source, "drop_letters", away)
    monkeypatch.setattr("operations.push.letters._Carriers.send", lambda *_: None)
    done = {"list": list_letters, "send": send_letters, "drop": drop_refused}[verb]
    with pytest.raises(means, match="kept"):
        done(pipeline, WantedLetters())


class Slow:
    """A sender whose last POST takes until ``over``."""

    all: ClassVar[list[Slow]] = []

    def __init__(self, sending: Sending, _token: str, _say: object) -> None:
        self.sending, self.health, self.asked, self.over = sending, Health(), False, False
        self.all.append(self)

    def start(self) -> None:
        assert all(one.ended for one in self.all if one is not self), "two senders of one webhook"

    def stop(self) -> None:
        self.asked = True

    @property
    def ended(self) -> bool:
        return self.asked and self.over


def test_the_next_sender_of_a_webhook_begins_once_the_last_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.push.webhooks.Sender", Slow)
    monkeypatch.setattr(Slow, "all", [])
    one, other = (load(file_of(tmp_path, batch=batch)) for batch in (3, 4))
    found = Webhooks(lambda: (one, {"kept"}), print)
    for pipeline, sinks in ((one, {"kept"}), (other, {"kept"}), (one, set()), (one, {"kept"})):
        found._follow(pipeline, sinks)
    [first] = Slow.all
    assert first.asked, "the file of before is back, and the thread has been told to end"
    first.over = True
    found._follow(one, {"kept"})
    assert [sender.sending == first.sending for sender in Slow.all] == [True, True]
    found._follow(other, {"kept"})
    Slow.all[-1].over = True
    found._follow(other, {"kept"})
    assert [sender.sending.batch for sender in Slow.all] == [3, 3, 4]
