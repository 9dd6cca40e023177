"""What an erasure says of what it could not remove: a document that is still there, files of nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SinkUnavailable
from cdc.join.rows import Stamp, write
from cdc.letters.deadletter import DeadLetter
from cdc.log import letter_log
from cdc.log.letter_log import LetterLog, Raw
from cdc.log.letters import THROUGH
from cdc.pipeline import Pipeline
from cdc.view import View
from console.cli import erase as verb
from operations.erase import eraser, readers, servers, warehouse
from operations.erase import letters as erase_letters
from operations.erase import log as erase_log
from operations.erase.eraser import Eraser, Options
from operations.erase.letters import Letters
from operations.erase.log import InLog
from operations.erase.note import Note
from operations.erase.places import Place, settled
from operations.erase.readers import Build, behind
from operations.erase.tables import Held
from operations.erase.warehouse import SINCE, TABLES, UNTOLD
from operations.opened import Opened
from sinks.iceberg.remains import Remains
from sinks.rowstore.contract import Swap
from spark.disk.register import Registered
from spark.disk.state import Generation
from spark.warehouse import erasing
from tests.support.erase_cases import PERSONS, build, joined, pipeline, subject


@pytest.mark.parametrize(("there", "left"), [([], 0), (["7"], 1)])
def test_a_document_that_is_still_there_is_left_and_changes_that_came_since_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], left: int
) -> None:
    """A view whose changes are kept was left out of the last look, and its document told as gone."""
    made, one = [build(tmp_path, View.identity(PERSONS))], subject(tmp_path, "7")
    target = SimpleNamespace(get=lambda _, keys: {key: 1 for key in keys if key in there}, kept_changes=lambda _: 3)
    monkeypatch.setattr(servers, "holding", lambda *_: nullcontext(SimpleNamespace(target=target)))
    monkeypatch.setattr(servers, "files_of", lambda _: [])
    before = servers.look(one, made)
    assert [(place.kind, place.found, place.hidden) for place in before] == [("cache", left, 3)]

    monkeypatch.setattr(servers, "erase_files", lambda *_: [Place("cache", "files of h", "cache")])
    monkeypatch.setattr(servers, "erase_changes", lambda *_: None)
    moved = list[bool]()

    def erased(*_: object, move_tags: bool) -> list[Place]:
        moved.append(move_tags)
        return []

    monkeypatch.setattr(eraser, "row_in_log", lambda *_: InLog("t"))
    monkeypatch.setattr(eraser, "erase_tables", erased)
    monkeypatch.setattr(eraser, "builds_of", lambda _: made)
    monkeypatch.setattr(eraser, "source_catalogue", lambda _: None)
    letters = SimpleNamespace(supersede=lambda: 0, look=lambda _: InLog("letters"))
    looked = SimpleNamespace(log=InLog("t"), letters=InLog("letters"))
    after = Eraser(one, Options(act=True))._erase(cast(Any, letters), made, cast(Any, looked))
    assert moved == [False]
    [cache, *_] = settled(before, after)
    assert (cache.left, cache.hidden_left, cache.empty) == (left, 0, not left)
    assert [place.name for place in after].count("files of h") == 1


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Erases a history's table of which one was killed before: what is there then, and what a remover has found."""
    one, held = subject(tmp_path, "7"), Held("lake", None, "", "n.past", Remains())
    Note(one.pipeline).begin(TABLES, "lake: n.past", {SINCE: "5"})
    monkeypatch.setattr(warehouse, "warehouses", lambda *_: ["lake"])
    monkeypatch.setattr(warehouse, "open_spark", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(warehouse, "_alone", lambda *_: nullcontext())
    monkeypatch.setattr(warehouse, "tables_of", lambda *_: [held])
    monkeypatch.setattr(warehouse, "forget_rows", lambda *_: None)
    monkeypatch.setattr(warehouse, "rewrite", lambda *_, files: "written anew")

    def erase(found: int | None) -> list[Place]:
        monkeypatch.setattr(warehouse, "remove_left", lambda *_: found)
        return warehouse.erase_tables(one, [], move_tags=False)

    return one, erase


def test_files_that_are_not_told_from_another_tables_are_said_to_be_left(killed: Any) -> None:
    """Each erasure after a kill failed there, also once somebody had removed them."""
    one, erase = killed
    for _ in range(2):  # killed again before its certificate was written
        found = erase(None)
        [place] = settled([Place("history", "n.past", "lake", found=1)], found)
        assert (place.left, place.hidden_left, place.empty, place.note) == (0, 1, False, UNTOLD)
    warehouse.end_untold(one, found)
    assert Note(one.pipeline).read() == {}


def test_files_that_were_removed_are_not_left(killed: Any) -> None:
    one, erase = killed
    [place] = settled([], erase(2))
    assert place.empty and place.note is None and Note(one.pipeline).read() == {}


def test_in_a_folder_of_two_tables_no_file_of_nobodys_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "loaded", lambda *_: None)
    monkeypatch.setattr(erasing, "others_in", lambda *_: True)
    assert erasing.remove_left(cast(Any, SimpleNamespace(_jvm=None)), "`c`.`n`.`past`", 5.0, 6.0) is None


class _Topic:
    """The letters' topic: what is in it, and how often it was gone through; nobody reads one record of it alone."""

    def __init__(self, *letters: DeadLetter) -> None:
        self.records, self.passes = list[Any](), 0
        self.publish({}, [(one.record_key(), one.to_json(), None) for one in letters])

    def publish(self, _config: Any, records: Sequence[tuple[bytes, bytes | None, int | None]]) -> None:
        for key, value, through in records:
            headers = [] if through is None else [(THROUGH, str(through).encode())]
            said = {"key": key, "value": value, "headers": headers, "offset": len(self.records), "partition": 0}
            self.records.append(SimpleNamespace(**{name: lambda one=one: one for name, one in said.items()}))

    def clear(self, config: Any, cleared: dict[bytes, int]) -> None:
        self.publish(config, [(key, None, through) for key, through in cleared.items()])

    def read(self, _kafka: Any, _topic: str, _partition: int, start: int = -2, **_: Any) -> list[Any]:
        self.passes += start <= 0
        return self.records[max(0, start) :]

    def kafka(self, _pipeline: Any) -> Any:
        def describe(topics: list[str]) -> dict[str, Any]:
            return {topic: SimpleNamespace(partitions=1) for topic in topics}

        def consumer() -> Any:
            raise AssertionError("a consumer for one letter")

        return SimpleNamespace(describe=describe, consumer=consumer)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (letter_log, erase_letters):
            monkeypatch.setattr(module, "Kafka", self.kafka, raising=False)
            monkeypatch.setattr(module, "publish", self.publish)
        monkeypatch.setattr(letter_log, "records", self.read)
        monkeypatch.setattr(letter_log, "clear", self.clear)
        monkeypatch.setattr(erase_log, "records", self.read)


def test_letters_are_looked_through_in_one_pass_however_many_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that stood was fetched by a consumer of its own, and all their documents were held at once."""
    others = [DeadLetter("cache", "persons", str(n), 1, "no", b"{}") for n in range(100, 150)]
    own, shows = DeadLetter("cache", "persons", "7", 1, "no", b"{}"), b'{"who": {"no": 7, "name": "Ann"}}'
    former = DeadLetter("cache", "card", "3|1", 1, "no", shows)
    card = DeadLetter("cache", "card", "1|2", 1, "no", shows)
    topic = _Topic(*others, own, former, DeadLetter("cache", "card", "3|1", 2, "no", b"{}"), card)
    topic.patch(monkeypatch)

    views = [build(tmp_path, one) for one in (View.identity(PERSONS), joined((("id", "no"), ("name", "name"))))]
    there = len(topic.records)
    assert Letters(subject(tmp_path, "7"), views).supersede() == 2
    written = {one.key(): one.value() for one in topic.records[there:]}
    assert written == {card.record_key(): card.without_values().to_json(), own.record_key(): None}
    assert topic.passes == 2  # what stands, and which of that hold the row


def test_a_letter_behind_a_tombstone_is_written_again_before_compaction_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another row, and nothing of this one is to be cleared: the topic is compacted all the same."""
    first, again = (DeadLetter("cache", "persons", "8", version, "no", b"{}") for version in (1, 2))
    topic = _Topic(first, again)
    topic.clear({}, {first.record_key(): 0})  # the second had come by then
    topic.patch(monkeypatch)
    raw = lambda _log, _topic, _part, at: Raw(topic.records[at].key(), topic.records[at].value())  # noqa: E731
    monkeypatch.setattr(LetterLog, "raw", raw)
    assert Letters(subject(tmp_path, "7"), [build(tmp_path, View.identity(PERSONS))]).supersede() == 0
    assert [(one.key(), one.value()) for one in topic.records[3:]] == [(again.record_key(), again.to_json())]


@pytest.mark.parametrize("waits", [0, 1])
def test_the_mark_of_a_deleted_row_forgets_its_foreign_keys_once_nobody_has_to_act_on_them(
    tmp_path: Path, waits: int
) -> None:
    """Else documents of its former parents would show it for ever: nothing told of them any more."""
    stamp = Stamp(9, 5, 3)
    value, asked, swapped = write(stamp, [[7]], b"", 4), list[Any](), list[Any]()

    def pipeline(commands: Sequence[tuple[str, ...]]) -> list[int]:
        asked.extend(commands)
        return [waits]

    store = SimpleNamespace(
        get=lambda _: [value],
        beside=lambda _: "{b}",
        pipeline=pipeline,
        swap=lambda swaps, _attempt: swapped.extend(swaps),
    )
    servers._bare_mark(cast(Any, store), subject(tmp_path, "7"), "r:1:7")
    assert asked == [("SISMEMBER", "{b}u:p.public.persons/3", "r:1:7")]
    bare = write(stamp, [], b"", 4)
    assert swapped == ([] if waits else [Swap("r:1:7", value, bare, fades=True)]), "unless it is another one by then"


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (0, None),
        (3, "3 documents of view card wait to be made"),
        (SinkUnavailable("it is away"), "nobody knows how many (it is away) documents of view card wait to be made"),
    ],
)
def test_documents_that_a_fan_out_has_left_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int | SinkUnavailable, told: str | None
) -> None:
    """The log is read to its end, and documents that show the row are still to be made without it."""

    def ask() -> int:
        if isinstance(waiting, SinkUnavailable):
            raise waiting
        return waiting

    monkeypatch.setattr(Opened, "row_store", lambda *_, **__: None)
    monkeypatch.setattr(readers, "RedisRowStore", lambda _: SimpleNamespace(waiting=ask, close=lambda: None))
    late = behind(subject(tmp_path), [build(tmp_path, joined((("id", "no"),)))], {})
    assert [one.who for one in late] == ([] if told is None else [f"sink cache, generation 2: {told}"])


def test_topics_of_matches_are_named_and_not_said_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headwater itself writes whole documents there, and neither the certificate nor the docs said a word of it."""
    raw = pipeline(tmp_path).model_dump(exclude_unset=True)
    views = {"person": {"root": "persons"}, "other": {"root": "persons"}}
    sinks = {
        "search": {"type": "elasticsearch", "url": "http://h", "views": [*views]},
        "cache": {"type": "redis", "url": "redis://h", "views": [*views], "changes": {}},
        "second": {"type": "redis", "url": "redis://g", "views": [*views], "changes": {}},
    }
    to = {"archive": {"topic": "person-matches"}, "again": {"topic": "person-matches"}, "alerts": {"url": "http://h/x"}}
    queries = {
        "person": {"search": "search", "changes": "cache", "push": to},
        "other": {"search": "search", "changes": "second", "push": {"others": {"topic": "other-matches"}}},
    }
    made = Pipeline.model_validate(raw | {"views": views, "sinks": sinks, "queries": queries})
    shown = (View("person", PERSONS, ("id",), (("id", "id"),)), View("other", PERSONS, ("id",), (("id", "id"),)))
    builds = [
        Build(Registered(n, "living"), Opened(made, Generation(tmp_path, "p", "cache", n), shown, 0), shown)
        for n in (1, 2)
    ]
    [place] = servers.copies(builds)
    assert (place.kind, place.name, place.sink, place.generation) == ("matches", "person-matches", "cache", None)
    assert place.note is not None and "queries.person.push.archive" in place.note
    report = Eraser(subject(tmp_path), Options(act=True))._told(settled([place], [place]), [], [])
    assert report["erased"] and report["found"] == 0, "it is not ours to empty"
    verb._print(report, True)
    said = capsys.readouterr().out
    assert "person-matches of cache: not touched\n" in said and "whoever keeps it must remove" in said
