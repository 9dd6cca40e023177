"""From where a webhook goes on, whatever readers see by then and wherever whoever sent was killed: without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from operations.push import delivery
from operations.push.delivery import Sending
from operations.push.envelope import Batch
from operations.push.events import Changes
from operations.push.lens import Lens
from operations.push.verdict import Verdict
from operations.push.walk import BEGUN, CHOSEN, PROMOTED
from operations.push.webhook import Sender
from operations.push.writing import Record, records
from sinks.contract import Held
from sinks.redis.read import NoChanges
from sinks.redis.stream.tail import Entry, Standing
from tests.support.pushed import Event, folded

Documents = dict[str, dict[str, Any]]


class Killed(Exception):
    """The process is gone."""


class World:
    """A view in two generations, what Redis keeps of its webhook, and a receiver that leaves out what it has seen.

    Attributes:
        live: the generation that readers see.
        documents: by generation.
        noted: of the webhook.
        lives: so many steps more (writes to Redis, batches) are made; then the process is gone, behind the last one.
        came: all events that the receiver has taken.
        ids: of all batches that it was sent.
        records: as which a topic has these batches.
    """

    def __init__(self, documents: Documents) -> None:
        self.live, self.version, self.lives = 1, 1, 10**6
        self.documents = {number: dict(documents) for number in (1, 2)}
        self.streams = {number: [Entry(b"1-0", "", 0, None, None)] for number in (1, 2)}
        self.noted: dict[str, str] = {}
        self.letters: list[Mapping[str, Any]] = []
        self.came: list[Event] = []
        self.ids: list[str] = []
        self.records: list[Record] = []
        self.answer: Callable[[Batch], Verdict] = lambda _: Verdict("delivered")
        self.idle: Callable[[], None] = lambda: None
        self.sender: Sender | None = None

    def write(self, key: str, document: dict[str, Any] | None, generations: Sequence[int] = (1, 2)) -> None:
        """A change; both generations are fed."""
        self.version += 1
        for number in generations:
            before = self.documents[number].pop(key, None)
            if document is not None:
                self.documents[number][key] = document
            one, other = (None if each is None else orjson.dumps(each) for each in (before, document))
            self.streams[number].append(Entry(b"%d-0" % self.version, key, self.version, one, other))

    def run(self, **said: Any) -> Sender:
        """A process that sends until nothing is left to be told, or until it is killed."""
        lens = Lens.of(said.pop("filter", ""))
        base: dict[str, Any] = {"pipeline": "p", "name": "w", "title": "webhook w", "to": None, "batch": 2}
        place = SimpleNamespace(view="v", sink="s", settings=SimpleNamespace(who="s"))
        more = {"place": place, "sees": Changes(lens), "about": lens.filter, "documents": True, "letters": True}
        self.sender = Sender(Sending(**{**base, **more, **said}), "token", lambda _: None)
        self.sender._serve(cast(Any, SimpleNamespace(tail=lambda: self, hooks=lambda *_: self)), cast(Any, self))
        return self.sender

    def whys(self) -> list[str]:
        """Of each ``reset``."""
        return [one.data["why"] for one in self.came if one.name == "reset"]

    def _step(self) -> None:
        self.lives -= 1
        if not self.lives:
            raise Killed

    # -- as Follows ----------------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        return Standing(self.live, str(self.live) * 16)

    def newest(self, standing: Standing) -> bytes:
        return self.streams[standing.generation][-1].place

    def after(self, standing: Standing, place: bytes, most: int) -> list[Entry]:
        stream = self.streams[standing.generation]
        at = next((number for number, one in enumerate(stream) if one.place == place), None)
        if standing != self.standing() or at is None:
            raise NoChanges
        return stream[at + 1 :][:most]

    def wait(self, *_: object) -> None:
        assert self.sender is not None
        idle, self.idle = self.idle, self.sender.stop
        idle()

    def behind(self, standing: Standing, place: bytes) -> int:
        return sum(one.place > place for one in self.streams[standing.generation])

    def pages(self, standing: Standing) -> Iterator[tuple[bytes, list[Held]]]:
        for key, document in list(self.documents[standing.generation].items()):
            yield self.newest(standing), [Held(key, 1, orjson.dumps(document))]

    # -- as Hooks ------------------------------------------------------------------------------------------------------

    def hold(self, fields: Mapping[str, Any] | None = None, letter: Any = None, *, take: bool = False) -> bool:
        self.letters += [letter] if letter else []
        for name, value in (fields or {}).items():
            self.noted.pop(name, None)
            if value not in (None, ""):  # as the script has it
                self.noted[name] = str(value)
        if fields:
            self._step()
        return True

    def kept(self) -> dict[str, str]:
        return dict(self.noted)

    # -- as Carrier ----------------------------------------------------------------------------------------------------

    def carry(self, batch: Batch, message: str, attempt: int, lease: object) -> Verdict:
        answer = self.answer(batch)
        if answer.done == "delivered":
            if message not in self.ids:
                self.came += [Event(one.name, one.value, one.cursor) for one in batch.events]
            self.ids.append(message)
            self.records += records(batch, message)
            self._step()
        return answer


def world(number: int = 5) -> World:
    """The next generation has other documents, so that who has some of each is found out."""
    made = World({f"k{each}": {"n": each} for each in range(number)})
    made.documents[2] = {key: {**one, "more": 2} for key, one in made.documents[1].items()} | {"new": {}}
    return made


def stops_at(one: World, name: str) -> None:
    """Whoever sends is told to stop as the receiver has taken an event of this name, as when the file changes."""

    def answer(batch: Batch) -> Verdict:
        if any(each.name == name for each in batch.events):
            assert one.sender is not None
            one.sender.stop()
        return Verdict("delivered")

    one.answer = answer


@pytest.mark.parametrize("shown", [1, 2], ids=["rolled back", "stays"])
def test_who_was_killed_anywhere_in_a_promotions_documents_is_told_all_of_what_readers_see_then(shown: int) -> None:
    """Behind a rollback the place of before was good again: what changed from there came, and nothing that was there
    already, though the receiver had been told to forget it."""
    for lives in count(1):
        one = world()
        one.run()
        one.live, one.lives = 2, lives
        try:
            one.run()
            break
        except Killed:
            one.lives = 10**6
        one.live = shown
        one.write("k1", {"n": 100})
        one.run()
        assert folded(one.came) == one.documents[shown], (lives, one.whys())
    assert lives > 20, "none was killed"


@pytest.mark.parametrize("name", ["reset", "snapshot"])
def test_who_was_told_to_stop_in_a_promotions_documents_begins_anew_behind_a_rollback(name: str) -> None:
    """A promotion and a rollback make other settings of the sink, so whoever sends is another one each time."""
    one = world()
    one.run()
    one.live = 2
    stops_at(one, name)
    one.run()
    one.live, one.answer = 1, lambda _: Verdict("delivered")
    one.run()
    assert folded(one.came) == one.documents[1] and one.whys() == [BEGUN, PROMOTED, BEGUN]


def test_who_forgot_for_what_comes_from_now_on_has_no_place_of_before() -> None:
    one = world()
    one.run(documents=False)
    one.live = 2
    stops_at(one, "reset")
    one.run(documents=False, batch=1)
    one.live, one.answer = 1, lambda _: Verdict("delivered")
    one.run()  # the file says `from: snapshot` by then
    assert folded(one.came) == one.documents[1]


def test_two_walks_through_the_same_documents_end_with_ids_of_their_own() -> None:
    """With one id for both, whoever leaves out what he has seen never hears that all was told."""
    one = world()
    one.run()
    for shown in (2, 1):
        one.live = shown
        one.run()
    assert [each.name for each in one.came].count("ready") == 3 and folded(one.came) == one.documents[1]


@pytest.mark.parametrize("documents", [True, False], ids=["documents", "now"])
def test_each_record_of_a_topic_has_an_id_of_its_own_and_has_it_again_when_it_is_sent_again(documents: bool) -> None:
    """A `ready` had that of the last change, or of the `ready` before it, and was left out as one that came already."""
    one = numbers()
    one.run(filter=EVEN, documents=documents)
    one.write("k0", {"n": 10, "even": True})
    one.run(filter=EVEN, documents=documents)
    for lives in range(1, 12):  # also behind a `ready` that was not noted
        one.lives = lives
        with suppress(Killed):
            one.run(filter=ODD, documents=documents)
    one.lives = 10**6
    one.run(filter=ODD, documents=documents)
    ids = {(each.id, each.value) for each in one.records}
    assert len({id_ for id_, _ in ids}) == len(ids)
    readies = [each.id for each in one.records if b'"ready"' in each.value]
    assert len(set(readies)) == [each.name for each in one.came].count("ready") >= 2
    assert documents or len(readies) > len(set(readies)), "none was sent again"


@pytest.mark.parametrize(("documents", "known"), [(True, None), (False, 2)], ids=["documents", "now"])
def test_how_far_behind_it_is_is_not_known_while_all_is_told_anew(
    monkeypatch: pytest.MonkeyPatch, documents: bool, known: int | None
) -> None:
    """What lay behind the place in the generation of before was counted, mostly 0. Without documents it is known: what
    has come since the `reset` that waits to be taken."""
    monkeypatch.setattr(delivery, "WORD_SECONDS", 0.0)
    one = world()
    assert one.run(documents=documents).health.lag_entries == 0
    one.live, found = 2, list[int | None]()

    def away(_batch: Batch) -> Verdict:
        assert one.sender is not None
        found.append(one.sender.health.lag_entries)
        if len(found) < 3:
            one.write("k1", {"n": 100 + len(found)})
        else:
            one.sender.stop()
        return Verdict("again", "down", 0.01)

    one.answer = away
    one.run(documents=documents)
    assert found == [None, known and 1, known]
    one.answer = lambda _: Verdict("delivered")
    assert one.run(documents=documents).health.lag_entries == 0 and folded(one.came)["k1"] == {"n": 102}


def test_what_lies_behind_in_a_generation_that_nobody_goes_on_with_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once that was retired it was 0, while the receiver had been away for hours."""
    monkeypatch.setattr(delivery, "WORD_SECONDS", 0.0)
    one = world()
    one.run()
    one.write("k1", {"n": 100})
    found = list[int | None]()

    def away(_batch: Batch) -> Verdict:
        assert one.sender is not None
        found.append(one.sender.health.lag_entries)
        if len(found) == 3:
            one.live = 2
        if len(found) == 6:
            one.sender.stop()
        return Verdict("again", "down", 0.01)

    one.answer = away
    one.run()
    assert found == [None, 1, 1, None, None, None]


# -- another filter ----------------------------------------------------------------------------------------------------

EVEN, ODD = "even == `true`", "even == `false`"


def numbers() -> World:
    return World({f"k{each}": {"n": each, "even": not each % 2} for each in range(5)})


def seen(one: World, filter: str) -> Documents:
    """What a receiver should have."""
    return {
        key: found for key, found in one.documents[one.live].items() if Lens.of(filter).matches(orjson.dumps(found))
    }


def test_another_filter_is_told_from_the_beginning_wherever_somebody_is_killed() -> None:
    """Of what was sent by the former one nobody was told that it left, and of what the new one lets through only what
    changed came."""
    for lives in count(1):
        one = numbers()
        one.run(filter=EVEN)
        one.lives = lives
        try:
            one.run(filter=ODD)
            break
        except Killed:
            one.lives = 10**6
        one.write("k0", None)
        one.run(filter=ODD)
        assert folded(one.came) == seen(one, ODD), lives
    assert one.whys() == [BEGUN, CHOSEN] and folded(one.came) == seen(one, ODD) and lives > 8
    one.run(filter=ODD)
    assert len(one.whys()) == 2, "once"


def test_a_filter_that_comes_back_before_anybody_was_told_of_another_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away() -> Standing:
        raise Killed

    one = numbers()
    one.run(filter=EVEN)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(one, "standing", away)
        one.run(filter=ODD)
    one.write("k0", None)
    one.run(filter=EVEN)
    assert one.whys() == [BEGUN] and folded(one.came) == seen(one, EVEN)


def test_the_place_of_an_older_headwater_is_gone_on_from_and_from_then_on_the_filter_is_known() -> None:
    one = numbers()
    one.run(filter=EVEN)
    del one.noted["chosen"]
    one.run(filter=EVEN)
    assert one.whys() == [BEGUN]
    one.run(filter="")
    assert one.whys() == [BEGUN, CHOSEN] and folded(one.came) == one.documents[1]
    one.run(filter=EVEN)
    assert len(one.whys()) == 3 and folded(one.came) == seen(one, EVEN), "no filter is one, too"


def test_without_documents_another_filter_forgets_what_came_and_goes_on_behind_it() -> None:
    one = numbers()
    one.run(filter=EVEN, documents=False)
    one.write("k0", {"n": 10, "even": True})
    one.run(filter=EVEN, documents=False)
    assert folded(one.came) == {"k0": {"n": 10, "even": True}}
    one.idle = lambda: one.write("k3", {"n": 13, "even": False})  # looked at, and let pass
    one.run(filter=EVEN, documents=False)
    one.write("k1", {"n": 11, "even": False})
    for lives in range(1, 5):  # killed before any of it was taken, and behind that
        one.lives = lives
        try:
            one.run(filter=ODD, documents=False)
        except Killed:
            continue
        finally:
            one.lives = 10**6
    one.run(filter=ODD, documents=False)
    assert folded(one.came) == {"k1": {"n": 11, "even": False}} and set(one.whys()) == {BEGUN, CHOSEN}
    assert [each.name for each in one.came][-3:] == ["reset", "ready", "change"]
