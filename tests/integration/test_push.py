"""Subscribing to a view, over HTTP and by ``tail``: nothing missed, nothing twice, and a word when it can't be so."""

from __future__ import annotations

import itertools
import json
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import requests
from click.testing import CliRunner

from console.cli.tail import command
from console.http import stream
from operations.push import streams, walk
from operations.push.events import Changes, Told
from operations.push.following import follow
from operations.push.lens import Lens
from tests.support.pushed import Event, Listening, Pushed, folded
from tests.support.servers import servers
from tests.support.sinks import VIEW, held, subject_on

pytestmark = pytest.mark.stack


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    with subject_on(servers(), "redis") as subject:
        yield Pushed(subject, tmp_path)


@pytest.fixture
def url(pushed: Pushed) -> Iterator[str]:
    with pushed.served() as found:
        yield found


def names(events: list[Event]) -> list[str]:
    return [one.name for one in events]


def documents(pushed: Pushed) -> dict[str, object]:
    return {key: json.loads(document) for key, (_, document) in held(pushed.sink).items()}


def test_everything_there_is_and_then_every_change(pushed: Pushed, url: str) -> None:
    pushed.write(1, a={"n": 1}, b={"n": 2})
    listening = Listening(url)
    begun = names(listening.until("ready"))
    assert [name for name, _ in itertools.groupby(begun)] == ["reset", "snapshot", "ready"]  # documents come in pages
    pushed.write(2, a={"n": 3}, b=None, c={"n": 4})
    pushed.write(2, a={"n": 3}, b=None, c={"n": 4})  # a batch again, after a crash
    pushed.write(3, c={"n": 5})
    told = [one.data for one in listening.until("change", 4)[len(begun) :]]
    assert [(one["key"], one["op"], one["before"], one["after"]) for one in told] == [
        ("a", "changed", {"n": 1}, {"n": 3}),
        ("b", "deleted", {"n": 2}, None),
        ("c", "created", None, {"n": 4}),
        ("c", "changed", {"n": 4}, {"n": 5}),
    ]
    assert folded(listening.events) == documents(pushed)


def test_from_every_cursor_exactly_the_rest(pushed: Pushed, url: str) -> None:
    first = Listening(url, **{"from": "now"})
    first.until("ready")
    for version in range(1, 11):
        pushed.write(version, a={"n": version}, b=None if version % 2 else {"n": version})
    told = first.until("change", 19)
    for place, one in enumerate(told):
        if one.name == "change":
            again = Listening(url, cursor=one.id)
            rest = again.until("ready")[:-1]
            assert [each.data for each in rest] == [each.data for each in told[place + 1 :]]
            again.close()
    by_query = Listening(url, **{"cursor": told[-2].id or ""})
    assert by_query.until("ready")[0].data == told[-1].data


def test_a_document_never_goes_back_while_everything_is_told(pushed: Pushed, url: str) -> None:
    """Four readers begin in the middle of a load; each ends with the documents, and sees each one only go on."""
    pushed.write(1, **{f"k{n}": {"v": 1} for n in range(3_000)})
    ended = threading.Event()

    def load() -> None:
        chance = random.Random(2)
        for version in itertools.count(2):
            keys = {f"k{chance.randrange(3_500)}" for _ in range(20)}
            pushed.write(version, **{key: None if chance.random() < 0.2 else {"v": version} for key in keys})
            time.sleep(0.01)
            if ended.is_set():
                return

    writer = threading.Thread(target=load)
    writer.start()
    readers = [Listening(url, filter="v != `0`") for _ in range(4)]
    for reader in readers:
        reader.until("ready")
    ended.set()
    writer.join()
    pushed.write(10**6, last={"v": 10**6})
    for reader in readers:
        while not any(one.name == "change" and one.data["key"] == "last" for one in reader.events):
            reader.until("change", names(reader.events).count("change") + 1)
        assert folded(reader.events) == documents(pushed)
        newest: dict[str, int] = {}
        for one in reader.events:
            for each in one.data["documents"] if one.name == "snapshot" else [one.data] if one.name == "change" else ():
                assert int(each["version"]) >= newest.get(each["key"], 0)
                newest[each["key"]] = int(each["version"])


def test_a_cursor_that_leads_nowhere_is_told_and_everything_again(pushed: Pushed, url: str) -> None:
    pushed.keep = 100
    pushed.sink = pushed.generation(1)
    pushed.write(1, a={"n": 0})
    first = Listening(url)
    cursor = first.until("ready")[-1].id
    first.close()
    for version in range(2, 40):
        pushed.write(version, **{f"k{n}": {"n": version} for n in range(20)})
    for given, why in ((cursor, walk.BEHIND), ("nonsense", walk.UNKNOWN)):
        again = Listening(url, cursor=given)
        told = again.until("ready")
        assert (told[0].name, told[0].data["why"]) == ("reset", why)
        assert folded(told) == documents(pushed) and len(documents(pushed)) == 21
        again.close()


def test_a_promotion_and_a_way_back_begin_anew(pushed: Pushed, url: str) -> None:
    other = pushed.generation(2)
    pushed.write(1, a={"n": 1})
    listening = Listening(url)
    cursor = listening.until("ready")[-1].id
    first, pushed.sink = pushed.sink, other
    pushed.write(1, a={"n": 100}, b={"n": 200})
    other.promote(VIEW, 1)
    told = listening.until("ready", 2)
    assert [one for one in told if one.name == "reset"][1].data["why"] == walk.PROMOTED
    assert folded(told) == {"a": {"n": 100}, "b": {"n": 200}}
    late = Listening(url, cursor=cursor)
    assert late.until("ready")[0].data["why"] == walk.PROMOTED
    first.promote(VIEW, 2)
    told = listening.until("ready", 3)
    assert folded(told) == {"a": {"n": 1}}
    pushed.sink = first
    pushed.write(2, a={"n": 2})
    assert folded(listening.until("change")) == {"a": {"n": 2}}


def test_a_stream_that_was_made_anew_is_another_one(pushed: Pushed, url: str) -> None:
    pushed.write(1, a={"n": 1})
    listening = Listening(url)
    listening.until("ready")
    pushed.sink.empty(VIEW)
    pushed.write(2, b={"n": 2})
    told = listening.until("ready", 2)
    assert [one for one in told if one.name == "reset"][1].data["why"] == walk.ANEW
    assert folded(listening.events) == {"b": {"n": 2}}


def test_a_filter_tells_who_enters_and_who_leaves(pushed: Pushed, url: str) -> None:
    pushed.write(1, a={"s": "open", "n": 1}, b={"s": "shut", "n": 1})
    listening = Listening(url, filter="s == 'open'", fields="n")
    assert folded(listening.until("ready")) == {"a": {"n": 1}}
    pushed.write(2, a={"s": "open", "n": 1, "x": 1}, b={"s": "open", "n": 1})
    pushed.write(3, a={"s": "shut", "n": 1})
    told = [one.data for one in listening.until("change", 2) if one.name == "change"]
    assert [(one["key"], one["op"], one["after"]) for one in told] == [
        ("b", "entered", {"n": 1}),
        ("a", "left", {"n": 1}),
    ]
    assert folded(listening.events) == {"b": {"n": 1}}


def test_a_silence_carries_the_cursor_on(pushed: Pushed, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sees nothing of many changes can still go on after them."""
    monkeypatch.setattr(streams, "QUIET_SECONDS", 0.2)
    pushed.write(1, a={"n": 1})
    raw = requests.get(f"{url}/v1/stream/{VIEW}", params={"filter": "n < `0`"}, stream=True, timeout=10)
    lines = raw.iter_lines(chunk_size=1, decode_unicode=True)
    cursors = list(itertools.islice((one for one in lines if one.startswith("id: ")), 1))
    pushed.write(2, a={"n": 2})
    later = next(line for line in lines if line.startswith("id: ") and line not in cursors)
    raw.close()
    again = Listening(url, cursor=later.removeprefix("id: "))
    assert names(again.until("ready")) == ["ready"]


def test_a_slow_reader_is_let_go_with_a_word_and_goes_on_later(
    pushed: Pushed, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SLOW_SECONDS", 0.5)
    host, port = url.removeprefix("http://").split(":")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    slow.connect((host, int(port)))
    slow.sendall(f"GET /v1/stream/{VIEW}?from=now HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    slow.recv(700)
    for version in range(1, 120):  # some 12 MB, which no socket holds
        pushed.write(version, a={"n": version, "t": "x" * 100_000})
    time.sleep(1.0)
    came = bytearray()
    while piece := slow.recv(1 << 20):
        came += piece
        if b"event: slow" in came and came.endswith(b"0\r\n\r\n"):
            break
    slow.close()
    text = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", bytes(came)).decode()  # the frames of chunks cut words in two
    assert "event: slow" in text and "nothing was taken" in text
    last = text[text.rindex("id: ") + 4 :].split()[0]
    seen = text.count("event: change")
    rest = Listening(url, cursor=last).until("ready", seconds=30)
    assert names(rest).count("change") + seen == 119 and rest[0].name == "change"


def test_what_is_wrong_is_answered_with_a_status(pushed: Pushed, url: str) -> None:
    for query, status, word in (
        ({"filter": "n =="}, 400, "at character 5"),
        ({"sink": "nobody"}, 404, "no sink nobody"),
        ({"from": "yesterday"}, 400, "from"),
    ):
        answer = requests.get(f"{url}/v1/stream/{VIEW}", params=query, timeout=10)
        assert answer.status_code == status and word in answer.text
    assert requests.get(f"{url}/v1/stream/other", timeout=10).status_code == 404
    pushed.subject.open(keep=0).setup()  # type: ignore[attr-defined]
    answer = requests.get(f"{url}/v1/stream/{VIEW}", timeout=10)
    assert answer.status_code == 503 and "no changes of view thing are kept" in answer.text


def test_a_token_may_subscribe_and_no_more(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_STREAM_TOKEN", "s" * 20)
    monkeypatch.setenv("HEADWATER_READ_TOKEN", "r" * 20)
    with pushed.served() as url:
        for token, path, status in (
            ("s", "stream/thing", 200),
            ("r", "stream/thing", 403),
            ("s", "matches/thing", 404),
            ("r", "matches/thing", 403),
            ("s", "queries/thing", 403),
            ("s", "status", 403),
        ):
            headers = {"Authorization": f"Bearer {token * 20}"}
            with requests.get(f"{url}/v1/{path}", headers=headers, stream=True, timeout=10) as answer:
                assert answer.status_code == status, (token, path)
        shown = requests.get(f"{url}/stream", headers={"Authorization": f"Bearer {'r' * 20}"}, timeout=10).text
        assert "sign in" in shown and "data-stream" not in shown


def test_tail_goes_on_from_where_it_was(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed.write(1, a={"n": 1})
    source = pushed.source()
    told: list[Told] = []
    for found in follow(source, Changes(Lens.of(None))):
        told += found
        if not found:
            if len(told) < 4:
                pushed.write(2, a={"n": 2})
            else:
                break
    source.close()
    assert [one.name for one in told] == ["reset", "snapshot", "ready", "change"]
    pushed.write(3, a={"n": 3})
    # The verb itself, until what it prints is enough.

    def ends(*given: object, **more: object) -> Iterator[list[Told]]:
        for found in follow(*given, **more):  # type: ignore[arg-type]
            yield found
            if any(one.name == "ready" for one in found):
                return

    monkeypatch.setattr("operations.push.following.follow", ends)
    printed = CliRunner().invoke(command, [str(pushed.file), VIEW, "--after", told[-1].cursor or "", "--json"])
    assert printed.exit_code == 0, printed.output
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [(one["event"], one["data"].get("after")) for one in lines] == [("change", {"n": 3}), ("ready", None)]
    plain = CliRunner().invoke(command, [str(pushed.file), VIEW, "--snapshot"])
    assert 'is       a  {"n":3}' in plain.stdout


def test_a_redis_that_goes_away_is_waited_for(pushed: Pushed, url: str) -> None:
    listening = Listening(url, **{"from": "now"})
    listening.until("ready")
    with redis.Redis.from_url(pushed.subject.url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    pushed.write(1, a={"n": 1})
    assert listening.until("change")[-1].data["after"] == {"n": 1}
