"""Webhooks on a real Redis, to a real HTTP server: each change is taken, in its order, whatever the receiver does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from cdc.pipeline import load
from console.cli.letters import command
from operations.push import delivery, webhook
from operations.push.health import push_report
from operations.push.walk import BEGUN, BEHIND, PROMOTED, READ_ANEW
from operations.push.webhooks import Webhooks
from tests.support.json_examples import example
from tests.support.pushed import Pushed, folded
from tests.support.pushing import broken
from tests.support.receiver import SECRET, Receiver
from tests.support.servers import servers
from tests.support.sinks import VIEW, subject_on

pytestmark = pytest.mark.stack

HOOK = """
push: {{hook: {{view: {view}, url: "{url}", secret: {secret}, batch: 3}}}}
"""
# A process that sends until it is killed, and does not keep others waiting.
PROCESS = """
import sys, time
from pathlib import Path
from cdc.pipeline import load
from operations.push import webhook
from operations.push.webhooks import Webhooks
webhook.LEASE_SECONDS = 1.0
pipeline = load(Path(sys.argv[1]))
with Webhooks(lambda: (pipeline, {"tested"}), print):
    time.sleep(60)
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def pushed(tmp_path: Path, receiver: Receiver) -> Iterator[Pushed]:
    with subject_on(servers(), "redis") as subject:
        yield Pushed(subject, tmp_path, more=HOOK.format(view=VIEW, url=receiver.url, secret=SECRET))


@contextmanager
def sending(pushed: Pushed, said: list[str] | None = None) -> Iterator[None]:
    pipeline = load(pushed.file)
    with Webhooks(lambda: (pipeline, {"tested"}), (said if said is not None else []).append):
        yield


def changes(receiver: Receiver) -> list[tuple[str, object]]:
    return [(one.data["key"], one.data["after"]) for one in receiver.taken() if one.name == "change"]


def test_everything_there_is_and_then_every_change_also_after_a_restart(pushed: Pushed, receiver: Receiver) -> None:
    pushed.write(1, a={"n": 1}, b={"n": 2})
    with sending(pushed):
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
        pushed.write(2, a={"n": 3}, b=None)
        receiver.until(lambda: len(changes(receiver)) == 2)
    pushed.write(3, c={"n": 4})
    with sending(pushed):
        receiver.until(lambda: len(changes(receiver)) == 3)
        time.sleep(0.3)
    names = [one.name for one in receiver.taken()]
    assert [name for name, _ in groupby(names)] == ["reset", "snapshot", "ready", "change"]  # documents come in pages
    assert names.count("change") == 3
    assert folded(receiver.taken()) == {"a": {"n": 3}, "c": {"n": 4}}
    assert {post.status for post in receiver.posts} == {200}, "each is signed"
    assert len({post.id for post in receiver.posts}) == len(receiver.posts), "each came once"


def test_a_receiver_that_fails_is_asked_again_with_the_same_and_a_no_is_put_aside(
    pushed: Pushed, receiver: Receiver
) -> None:
    said: list[str] = []
    with sending(pushed, said):
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
        before = len(receiver.posts)
        receiver.answers.extend(
            [500, (429, {"Retry-After": "1"}), None, (307, {"Location": receiver.url + "/there"}), 200, 400]
        )
        pushed.write(1, a={"n": 1})
        receiver.until(lambda: len(changes(receiver)) == 1)
        tries = receiver.posts[before:]
        assert [one.status for one in tries] == [500, 429, None, 307, 200]
        assert len({(one.id, one.body, one.path) for one in tries}) == 1
        assert tries[2].at - tries[1].at >= 1.0, "as it asked"
        pushed.write(2, a={"n": 2})
        receiver.until(lambda: receiver.posts[-1].status == 400)
        pushed.write(3, a={"n": 3})
        receiver.until(lambda: changes(receiver) == [("a", {"n": 1}), ("a", {"n": 3})])
        pipeline = load(pushed.file)
        # It is counted once its answer has been read, which is a moment after the receiver has sent that.
        receiver.until(lambda: (push_report(pipeline)[0]["letters"], push_report(pipeline)[0]["events"]) == (1, 4))
        [report] = push_report(pipeline)
        assert (report["state"], report["lag_entries"], report["failing_since"]) == ("delivering", 0, None)
        assert time.time() - report["delivered_at"] < 10
    with redis.Redis.from_url(pushed.subject.url) as client:
        [(_, letter)] = client.xrange(f"{pushed.subject.name}:{VIEW}@letters")
        before = pushed.sink.kept_changes(VIEW)
        pushed.sink.forget_changes(VIEW)  # an erasure
        assert before == 4 and pushed.sink.kept_changes(VIEW) == 0
        assert not client.exists(f"{pushed.subject.name}:{VIEW}@letters"), "it tells what a document was"
    assert letter[b"why"] == b"it answers 400" and json.loads(letter[b"body"])[0]["data"]["after"] == {"n": 2}
    assert any("it answers 500" in line for line in said) and any("takes events again" in line for line in said)
    assert any("is a letter now" in line for line in said)


def letters(pushed: Pushed, *asked: str, code: int = 0) -> dict[str, Any]:
    """The verb, in this process."""
    done = CliRunner().invoke(command, [str(pushed.file), "webhooks", *asked, "--json"])
    assert done.exit_code == code, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_letters_are_listed_sent_again_and_dropped(pushed: Pushed, receiver: Receiver) -> None:
    with sending(pushed):
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
        receiver.answers.extend([400, 400, 422])
        for version in (1, 2, 3):
            left = 3 - version
            pushed.write(version, a={"n": version, "exact": 1.1000000000000000001})
            receiver.until(lambda left=left: len(receiver.answers) == left and receiver.posts[-1].status in (400, 422))
            receiver.until(lambda version=version: letters(pushed, "list")["standing"] == version)
    refused = receiver.posts[-3:]
    report = letters(pushed, "list", "--cause", "answers 4..")
    assert [one["id"] for one in report["letters"]] == [one.id for one in refused]
    assert report["letters"][0].keys() == example("letters webhooks list")["letters"][0].keys()
    [shown] = letters(pushed, "list", "--id", refused[2].id, "--values")["letters"]
    assert shown["body"][0]["data"]["after"]["n"] == 3 and shown["why"] == "it answers 422"
    # One is refused again, the others are taken: with the ids and the bytes that they had.
    receiver.answers.extend([200, 403])
    report = letters(pushed, "send", code=2)
    assert (report["asked"], report["taken"], report["left"]) == (3, 2, 1)
    assert report["why"] == [{"webhook": "hook", "id": refused[1].id, "why": "it answers 403"}]
    assert report.keys() == example("letters webhooks send").keys()
    again = receiver.posts[-3:]
    assert [(one.id, one.body) for one in again] == [(one.id, one.body) for one in refused]
    receiver.kill()
    assert letters(pushed, "send", code=2)["why"][0]["why"].startswith("no answer")
    receiver.start()
    assert letters(pushed, "drop", "--webhook", "other", "--yes")["dropped"] == 0
    assert letters(pushed, "drop", "--dry-run") | {"at": 0} == {
        "pipeline": "pushed",
        "at": 0,
        "standing": 1,
        "dropped": 0,
    }
    assert letters(pushed, "drop", "--yes").keys() == example("letters webhooks drop").keys()
    assert letters(pushed, "list")["standing"] == 0 and letters(pushed, "send")["asked"] == 0


def test_a_receiver_that_is_away_is_waited_for(
    pushed: Pushed, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "WORD_SECONDS", 0.2)
    pipeline = load(pushed.file)
    with sending(pushed):
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
        receiver.kill()
        for version in range(1, 8):
            pushed.write(version, a={"n": version}, b=None if version % 2 else {"n": version})
        receiver.until(lambda: push_report(pipeline)[0]["lag_entries"] == 13)
        [report] = push_report(pipeline)
        assert report["state"] == "failing" and "no answer" in report["why"] and report["failing_since"]
        receiver.start()
        receiver.until(lambda: len(changes(receiver)) == 13)
    assert broken(receiver.taken()) == [] and folded(receiver.taken()) == {"a": {"n": 7}}


def test_a_process_that_is_killed_before_it_has_noted_an_answer_sends_the_same_again(
    pushed: Pushed, receiver: Receiver
) -> None:
    command = [sys.executable, "-c", PROCESS, str(pushed.file)]
    with subprocess.Popen(command) as first:
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))

        def killed() -> int:
            first.kill()
            first.wait()
            pushed.write(2, b={"n": 2})  # the next batch could hold this one too
            return 200

        receiver.answers.append(killed)
        pushed.write(1, a={"n": 1})
        receiver.until(lambda: len(changes(receiver)) == 1)
    with sending(pushed):
        receiver.until(lambda: len(changes(receiver)) == 2)
    twice, again, _ = receiver.posts[-3:]
    assert (twice.id, twice.body) == (again.id, again.body)
    assert broken(receiver.taken()) == []


def test_of_two_processes_one_sends_and_the_other_takes_over(pushed: Pushed, receiver: Receiver) -> None:
    with sending(pushed):
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
        with sending(pushed):
            for version in range(1, 30):
                pushed.write(version, a={"n": version})
                time.sleep(0.02)
            receiver.until(lambda: len(changes(receiver)) == 29)
            with redis.Redis.from_url(pushed.subject.url) as client:  # as if the first had been silent for too long
                client.hset(f"{pushed.subject.name}:{VIEW}@hooks", "hook:until", "0")
                receiver.until(lambda: client.hget(f"{pushed.subject.name}:{VIEW}@hooks", "hook:until") != b"0")
            for version in range(30, 60):
                pushed.write(version, a={"n": version})
                time.sleep(0.02)
            receiver.until(lambda: len(changes(receiver)) == 59)
        time.sleep(0.2)
    assert broken(receiver.taken()) == []
    assert len({post.id for post in receiver.posts}) == len(receiver.posts)


def test_a_promotion_and_a_cursor_that_is_too_old_begin_anew(pushed: Pushed, receiver: Receiver) -> None:
    pushed.keep = 100
    pushed.sink = pushed.generation(1)
    other = pushed.generation(2)
    with sending(pushed):
        pushed.write(1, a={"n": 1})
        receiver.until(lambda: folded(receiver.taken()) == {"a": {"n": 1}} and receiver.taken()[-1].name == "ready")
        pushed.sink = other
        pushed.write(1, a={"n": 100}, b={"n": 200})
        other.promote(VIEW, 1)
        receiver.until(lambda: folded(receiver.taken()) == {"a": {"n": 100}, "b": {"n": 200}})
        receiver.until(lambda: receiver.taken()[-1].name == "ready")
    for version in range(2, 40):
        pushed.write(version, **{f"k{n}": {"n": version} for n in range(20)})
    with sending(pushed):
        receiver.until(lambda: len(folded(receiver.taken())) == 22)
        receiver.until(lambda: receiver.taken()[-1].name == "ready")
    why = [one.data["why"] for one in receiver.taken() if one.name == "reset"]
    assert (why[1], why[-1]) == (PROMOTED, BEHIND)  # and perhaps once more, while keys are renamed


def test_it_ends_at_once_though_the_receiver_hangs(pushed: Pushed, receiver: Receiver) -> None:
    receiver.answers.append(lambda: time.sleep(5) or 200)
    began = 0.0
    with sending(pushed):
        receiver.until(lambda: not receiver.answers)
        began = time.monotonic()
    assert time.monotonic() - began < 2.0


def test_who_was_told_to_stop_lets_the_next_one_send_at_once(pushed: Pushed, receiver: Receiver) -> None:
    assert webhook.LEASE_SECONDS > 15
    for _ in range(2):
        with sending(pushed):
            pushed.write(int(time.time()), a={"at": time.time()})
            began, known = time.monotonic(), len(receiver.posts)
            receiver.until(lambda known=known: len(receiver.posts) > known)
            assert time.monotonic() - began < 5


def test_a_changed_file_waits_for_the_batch_that_is_on_its_way(pushed: Pushed, receiver: Receiver) -> None:
    """Whoever sends by the new file began at once, beside the one who was still waiting for an answer."""
    files, under_way, answered = [load(pushed.file)], threading.Event(), threading.Event()
    text = pushed.file.read_text().replace("batch: 3", "batch: 4")

    def slow() -> int:
        under_way.set()
        time.sleep(4)
        answered.set()
        return 200

    with Webhooks(lambda: (files[-1], {"tested"}), print), redis.Redis.from_url(pushed.subject.url) as client:
        receiver.until(lambda: any(one.name == "ready" for one in receiver.taken()))
        receiver.answers.append(slow)
        pushed.write(1, a={"n": 1})
        assert under_way.wait(20)
        pushed.file.write_text(text)
        files.append(load(pushed.file))
        pushed.write(2, a={"n": 2})
        receiver.until(lambda: len(changes(receiver)) == 2, seconds=10)  # and not a lease's 20 s
        assert answered.wait(20)
        pushed.write(3, a={"n": 3})
        receiver.until(lambda: len(changes(receiver)) == 3)
        hooks = f"{pushed.subject.name}:{VIEW}@hooks"
        last = receiver.taken()[-1].id
        receiver.until(lambda: client.hget(hooks, "hook:cursor") == str(last).encode())
        assert client.hget(hooks, "hook:owner"), "the one who ended gave his own lease back, and not the next one's"
    assert [after for _, after in changes(receiver)] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert broken(receiver.taken()) == []
    assert len({post.id for post in receiver.posts}) == len(receiver.posts), "each came once"


@pytest.mark.parametrize("batch", [1, 3])
def test_what_changes_after_now_comes_though_nobody_took_the_beginning(
    pushed: Pushed, receiver: Receiver, batch: int
) -> None:
    """Until its first batch was taken, and after each promotion, every start began at what was newest then."""
    pushed.file.write_text(pushed.file.read_text().replace("batch: 3", f"batch: {batch}, from: now"))
    other = pushed.generation(2)
    pushed.write(1, before={"n": 0})
    pipeline, said = load(pushed.file), list[str]()
    for version in (1, 2):
        receiver.kill()
        said.clear()
        with sending(pushed, said):
            if version == 2:
                pushed.sink = other
                pushed.write(1, before={"n": 0})
                other.promote(VIEW, 1)
            receiver.until(lambda: said)
        pushed.write(version, a={"n": version})
        with sending(pushed):
            time.sleep(1)
            pushed.write(version, b={"n": version})
            receiver.start()
            receiver.until(lambda version=version: len(changes(receiver)) == 2 * version)
            receiver.until(lambda: push_report(pipeline)[0]["lag_entries"] == 0)
    told = [(one.name, one.data.get("why") or one.data.get("key")) for one in receiver.taken()]
    expected = [("reset", BEGUN), ("ready", None), ("change", "a"), ("change", "b")]
    assert told[:4] == expected and told[-3:] == expected[1:]
    assert told[-4] in (("reset", PROMOTED), ("reset", READ_ANEW))
    assert folded(receiver.taken()) == {"a": {"n": 2}, "b": {"n": 2}}


def test_who_has_slept_while_another_sent_and_ended_does_not_go_on_from_his_own_place(pushed: Pushed) -> None:
    """His next word took the lease that was free again, and the place went back to where he had stood."""
    sources = [pushed.source(), pushed.source()]
    asleep, other = (source.hooks("hook", token, 0.05) for source, token in zip(sources, "ab", strict=True))
    try:
        assert asleep.hold(take=True) and asleep.hold()
        assert not other.hold({"cursor": "5"}), "he never had it"
        time.sleep(0.1)
        assert asleep.hold(), "nobody else has had it"
        time.sleep(0.1)
        assert other.hold(take=True) and other.hold({"cursor": "5"})
        other.release()
        assert not asleep.hold() and not asleep.hold({"cursor": "3"})
        assert asleep.hold(take=True) and asleep.kept()["cursor"] == "5"
    finally:
        for source in sources:
            source.close()
