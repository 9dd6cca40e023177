"""A state folder that was copied, lost or put back: what it says is held against what the target shows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from cdc.catalogue import Table
from cdc.errors import DiskFull, Fenced, SinkRefused, SinkUnavailable, StateError, TopicRecreated
from cdc.pipeline import Pipeline, loads
from operations import opened
from operations.generations import elsewhere
from operations.generations import found as module
from operations.generations.elsewhere import (
    is_strange,
    made_claims,
    note_claim,
    noted_claim,
    refuse_claimed,
    refuse_elsewhere,
    refuse_put_back,
    take_over,
)
from operations.generations.found import Found, adopt, judge
from operations.generations.promote import promote
from operations.opened import Opened
from operations.run import flows
from operations.run.flows import _ours
from operations.state.folder import register_of
from operations.state.frozen import freeze
from spark.disk.promotion import Promotion
from spark.disk.register import Registered, Stage
from spark.disk.state import Identity
from spark.flow import Flow, Reading
from spark.reading.spec import FlowSpec
from tests.support.promoted import promoted
from tests.support.watched_file import TEXT

FLOW = cast(Any, SimpleNamespace(spec=SimpleNamespace(sink="search")))


@pytest.mark.parametrize(
    ("claimed", "noted", "token", "refused"),
    [
        (None, None, 30, False),  # nobody has claimed it
        (20, None, 30, False),  # a folder from before claims were noted
        (20, 20, 30, False),  # this folder's last process
        (10, 20, 30, False),  # it noted 20, and was killed before it claimed
        (30, 20, 30, False),  # this very process, whose note was lost
        (25, 20, 30, True),  # somebody else, since
        (40, 20, 30, True),
    ],
)
def test_who_has_claimed_it(claimed: int | None, noted: int | None, token: int, refused: bool) -> None:
    if not refused:
        refuse_claimed("search", "order", claimed, noted, token)
        return
    with pytest.raises(Fenced, match="state folder of its own") as error:
        refuse_claimed("search", "order", claimed, noted, token)
    assert "--take-over" in error.value.fix


@pytest.mark.parametrize(
    ("number", "stages", "begun", "seen", "new", "strange"),
    [
        (1, {1: "living"}, None, None, True, False),  # the first
        (1, {1: "living"}, None, 1, False, False),
        (1, {1: "living"}, None, 2, False, True),  # promoted since the copy
        (1, {1: "living"}, None, 3, True, True),  # a register that was lost
        (2, {1: "previous", 2: "living"}, None, 1, True, False),  # a view that it has got besides
        (2, {1: "previous", 2: "living"}, None, 1, False, True),  # the sink is older than the register
        (1, {1: "living", 2: "ready"}, Promotion(2, 1), 2, False, False),  # readers are on their way
        (2, {1: "living", 2: "filling"}, None, 2, False, True),  # it was completed and shown since
        (2, {1: "living", 2: "filling"}, None, 1, True, False),
        (1, {1: "previous", 2: "living"}, None, 1, False, False),  # at a place of its own
    ],
)
def test_what_readers_see(
    number: int, stages: Mapping[int, Stage], begun: Promotion | None, seen: int | None, new: bool, strange: bool
) -> None:
    assert is_strange(number, stages, begun, seen, new=new) is strange


def test_claims_are_noted_and_forgotten(tmp_path: Path) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    generation = register_of(pipeline, "cache").generation(1)
    folder = generation.flow_folder("main")
    assert noted_claim(folder) is None
    note_claim(folder, 7)
    assert noted_claim(folder) == 7
    assert not generation.started, "a claim is no work: the file may still be changed"
    take_over(pipeline, [])
    assert noted_claim(folder) is None
    note_claim(folder, 8)
    for broken in ("{", "[]", '{"token": null, "made": {"order": "x"}}'):
        (folder / "claim.json").write_text(broken)
        assert noted_claim(folder) is None and not made_claims(folder)


# -- a target that was put back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "made", "refused"),
    [
        (None, None, False),
        (None, 20, False),  # its alias was removed by hand: nothing of what was written is gone
        (20, None, False),  # a folder from before this was noted
        (20, 20, False),
        (30, 20, False),  # another has claimed it since, or this one, which was killed before it could note that
        (10, 20, True),
    ],
)
def test_a_target_that_shows_an_older_claim(shown: int | None, made: int | None, refused: bool) -> None:
    flow = cast(Any, SimpleNamespace(spec=FLOW.spec, title="search/main"))
    if not refused:
        refuse_put_back(flow, "order", shown, made)
        return
    with pytest.raises(SinkRefused, match=r"put back from an older copy.* token 10.* token 20") as error:
        refuse_put_back(flow, "order", shown, made)
    assert "rebuild FILE search --auto" in error.value.fix


class Index:
    """What a search server shows of one view: the token that each of two indices was claimed with last."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def claimed(self, _view: str) -> int | None:
        return max(self.tokens, default=None)

    def oldest_claim(self, _view: str) -> int | None:
        return min(self.tokens, default=None)

    def living(self, _view: str) -> int | None:
        return None

    def close(self) -> None:
        pass


def test_a_target_that_can_not_say_which_claim_all_of_it_shows_is_not_taken_for_one_that_was_never_put_back(
    starts: tuple[Index, Flow, Callable[..., None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method under another name turned the look off, without a word."""
    _, _, start = starts
    start(5)
    monkeypatch.delattr(Index, "oldest_claim")
    with pytest.raises(AttributeError, match="oldest_claim"):
        start(6)


class Killed(BaseException):
    pass


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Index, Flow, Callable[..., None]]:
    """An index, its flow, and how a process with a token starts that."""
    pipeline, index = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {}), Index()
    generation = register_of(pipeline, "cache").generation(1)
    monkeypatch.setattr(elsewhere, "open_target", lambda _config: index)
    spec = FlowSpec("cache", cast(Any, {"order": None}), {}, {}, {}, {})
    flow = Flow("main", spec, Reading("", {}, None), generation.flow_folder("main"))

    def start(token: int, *, killed: str = "") -> None:
        build = Opened(pipeline, generation, [], token)

        def claim(_spark: Any, _flow: Flow) -> Any:
            if killed != "before":
                index.tokens = [token, token]
            if killed:
                raise Killed
            (flow.checkpoint).mkdir(parents=True, exist_ok=True)
            (flow.checkpoint / "metadata").write_text("{}")

        with pytest.raises(Killed) if killed else nullcontext():
            _ours(build, claim)(cast(Any, None), flow)

    return index, flow, start


@pytest.mark.parametrize("back", [[10, 10], [10, 20], [20, 10]], ids=["both", "the documents'", "the fences'"])
def test_an_index_that_was_put_back_is_refused(starts: Any, back: list[int]) -> None:
    index, flow, start = starts
    start(10)
    start(20)
    start(20)  # the same process, after its flow has failed
    index.tokens = back
    for token in (20, 30):
        with pytest.raises(SinkRefused, match=r"put back .* token 10, and cache/main .* token 20"):
            start(token)
    take_over(loads(TEXT.replace("STATE", str(flow.folder.parents[3])), "shop.yaml", {}), [])
    assert noted_claim(flow.folder) is None
    with pytest.raises(SinkRefused, match="put back"):
        start(40)
    index.tokens = [20, 20]
    start(40)
    assert index.tokens == [40, 40]


@pytest.mark.parametrize("killed", ["before", "after"])
def test_who_is_killed_as_it_claims_an_index_makes_it_no_older_one(starts: Any, killed: str) -> None:
    index, _, start = starts
    start(10)
    start(20, killed=killed)
    start(30)
    index.tokens = [20, 20]
    with pytest.raises(SinkRefused, match="put back"):
        start(40)


def test_what_was_never_filled_lacks_nothing(starts: Any) -> None:
    index, flow, start = starts
    start(10)
    shutil.rmtree(flow.checkpoint)
    index.tokens = [5, 5]
    start(20)


def test_a_claim_that_can_t_be_noted_stops_no_flow(starts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _, start = starts
    start(10)

    def full(_path: Path, text: str) -> None:
        if "20}}" in text:
            raise DiskFull("full")

    monkeypatch.setattr(elsewhere, "write_atomic", full)
    start(20)
    assert index.tokens == [20, 20]


# -- the register ------------------------------------------------------------------------------------------------------


def known(**stages: Stage) -> list[Registered]:
    return [Registered(int(name[1:]), stage) for name, stage in stages.items()]


@pytest.mark.parametrize(
    ("register", "seen", "there", "started", "told"),
    [
        (known(g1="living"), 1, (), (1,), None),
        (known(g1="living", g2="filling"), 1, (), (1, 2), None),
        (known(g1="living"), 1, (), (), None),  # lost, and it was the first: the next is 2
        (known(g1="living"), 1, (2,), (), Found(1, 2, frozenset(), frozenset({2}))),
        (known(g1="living"), 3, (3,), (), Found(3, 3, frozenset({1}))),  # lost
        (known(g1="living"), 3, (2, 3), (), Found(3, 3, frozenset({1}), frozenset({2}))),
        (known(g1="living"), 2, (2,), (1,), Found(2, 2)),  # promoted since the copy
        (known(g1="living", g2="ready"), 2, (), (1, 2), Found(2, 2)),
        (known(g1="living", g2="filling"), 2, (), (1, 2), Found(2, 2, frozenset({2}))),
    ],
)
def test_what_the_register_is_told(
    register: list[Registered], seen: int, there: tuple[int, ...], started: tuple[int, ...], told: Found | None
) -> None:
    assert judge(register, seen, there, started) == told


class Target:
    """What a server shows."""

    seen, numbers, others, away = 1, frozenset[int](), frozenset[int](), False
    asked: ClassVar[list[int]]

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.number = config["targets"]["order"]["generation"]

    def living(self, _view: str) -> int:
        if self.away:
            raise SinkUnavailable("away")
        return self.seen

    def there(self, _view: str) -> bool:
        self.asked.append(self.number)
        return self.number in self.numbers

    def numbered(self, targets: Collection[str]) -> dict[int, set[str]]:
        return {number: {*targets} for number in (*self.numbers, *self.others)}

    def close(self) -> None:
        pass


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Target]]:
    made = type("Shown", (Target,), {"asked": []})
    monkeypatch.setattr(module, "open_target", made)
    yield made


def stages(pipeline: Pipeline) -> dict[int, str]:
    return {entry.number: entry.stage for entry in register_of(pipeline, "cache").entries()}


def test_a_register_that_was_lost_is_made_of_what_readers_see(target: type[Target], tmp_path: Path) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    target.seen, target.numbers = 3, frozenset((2, 3))
    said: list[str] = []
    adopt(pipeline, "cache", said.append)
    assert stages(pipeline) == {2: "retiring", 3: "living"}
    assert "see generation 3" in said[0] and "headwater retire shop.yaml cache --generation 2" in said[1]
    register = register_of(pipeline, "cache")
    assert register.generation(3).views() == ["order"] and not register.generation(3).started
    assert register.create("x").number == 4
    said.clear()
    adopt(pipeline, "cache", said.append)
    assert stages(pipeline) == {2: "retiring", 3: "living", 4: "filling"} and not said


def test_an_older_register_keeps_what_it_has(target: type[Target], tmp_path: Path) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    register = register_of(pipeline, "cache")
    (register.generation(1).flow_folder("main") / "checkpoint").mkdir(parents=True)
    register.create("x")
    (register.generation(2).flow_folder("main") / "checkpoint").mkdir(parents=True)
    target.seen, target.numbers = 2, frozenset((1, 2))
    adopt(pipeline, "cache", lambda _line: None)
    assert stages(pipeline) == {1: "previous", 2: "living"}
    assert register.generation(1).started
    assert not register.generation(2).started, "a fill that was complete long ago must not be gone on with"


def test_only_generations_that_are_there_are_asked_for_however_many_there_were(
    target: type[Target], tmp_path: Path
) -> None:
    """Each number that ever was, was asked for of each view: with 500 tables and 50 rebuilds for eight minutes."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    register = register_of(pipeline, "cache")
    for _ in range(50):
        register.remove(register.create("x").number)
    target.numbers, target.others = frozenset((1, 70)), frozenset((7,))
    adopt(pipeline, "cache", lambda _line: None)
    assert target.asked == [7, 70]
    assert stages(pipeline) == {1: "living", 70: "retiring"}, "one of that name may be another's"
    assert register.create("x").number == 71


def test_nothing_is_changed_while_nobody_answers_or_readers_are_on_their_way(
    target: type[Target], tmp_path: Path
) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    register = register_of(pipeline, "cache")
    target.seen, target.numbers, target.away = 3, frozenset((3,)), True
    adopt(pipeline, "cache", lambda _line: None)
    assert stages(pipeline) == {1: "living"}
    target.away = False
    register.create("x")
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    adopt(pipeline, "cache", lambda _line: None)
    assert stages(pipeline) == {1: "living", 2: "ready"}


def second_is_filled(pipeline: Pipeline, target: type[Target]) -> None:
    """Readers see generation 2, which the register has as being filled."""
    register = register_of(pipeline, "cache")
    register.create("x")
    for number in (1, 2):
        (register.generation(number).flow_folder("main") / "checkpoint").mkdir(parents=True)
    target.seen, target.numbers = 2, frozenset((1, 2))


@pytest.mark.parametrize("then", ["is promoted", "is being promoted"])
def test_what_another_process_promotes_meanwhile_keeps_its_state(
    target: type[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The look had it as being filled: the checkpoints of the generation that readers see by now were removed."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    second_is_filled(pipeline, target)
    register, judge = register_of(pipeline, "cache"), module.judge

    def meanwhile(*looked: Any) -> Any:
        register.move(2, "ready")
        register.begin_promotion(2, 1)
        if then == "is promoted":
            register.promote(2)
        return judge(*looked)

    monkeypatch.setattr(module, "judge", meanwhile)
    adopt(pipeline, "cache", lambda _line: None)
    assert stages(pipeline) == ({1: "previous", 2: "living"} if then == "is promoted" else {1: "living", 2: "ready"})
    assert register.generation(2).started and not register.generation(2).lease.busy()


def test_a_promotion_that_began_after_the_look_is_left_to_who_has_begun_it(
    target: type[Target], tmp_path: Path
) -> None:
    """Entries are the same until it ends."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    second_is_filled(pipeline, target)
    register = register_of(pipeline, "cache")
    register.move(2, "ready")
    known = register.entries()
    register.begin_promotion(2, 1)
    assert not register.adopt(known, 2, 2)
    assert stages(pipeline) == {1: "living", 2: "ready"} and register.promotion() is not None


def test_what_another_process_runs_keeps_its_state(target: type[Target], tmp_path: Path) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    second_is_filled(pipeline, target)
    generation = register_of(pipeline, "cache").generation(2)
    generation.lock()
    with pytest.raises(StateError, match="generation 2 is already run by process"):
        adopt(pipeline, "cache", lambda _line: None)
    generation.unlock()
    assert stages(pipeline) == {1: "living", 2: "filling"} and generation.started


def test_readers_are_not_sent_to_a_generation_whose_state_was_lost(tmp_path: Path) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    register = register_of(pipeline, "cache")
    register.create("x")
    (register.generation(2).flow_folder("main") / "checkpoint").mkdir(parents=True)
    promoted(register, 2)
    with pytest.raises(StateError, match="nothing is known of how far generation 1 is"):
        promote(pipeline, "cache", 1, lambda _line: None)
    assert register.promotion() is None


# -- a server that has forgotten --------------------------------------------------------------------------------------


class Cache:
    """What a Redis server holds: the pointer of the one view, and keys."""

    def __init__(self, pointer: Mapping[str, str], *keys: bytes) -> None:
        self.pointer, self.keys = {name: value.encode() for name, value in pointer.items()}, keys

    def hmget(self, _key: bytes, fields: Sequence[str]) -> list[bytes | None]:
        return [self.pointer.get(name) for name in fields]

    def hkeys(self, _key: bytes) -> list[bytes]:
        return [name.encode() for name in self.pointer]

    def hget(self, _key: bytes, name: str) -> bytes | None:
        return self.pointer.get(name)

    def exists(self, _key: bytes) -> int:
        return int(bool(self.pointer))

    def scan(self, *_: Any, **__: Any) -> tuple[int, Sequence[bytes]]:
        return 0, self.keys

    def info(self) -> dict[str, str]:
        return {"run_id": "one", "role": "master"}


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Cache], None]]:
    def hold(cache: Cache) -> None:
        def server(settings: Any, _on_wait: Any) -> Any:
            open_to_all = {"once": lambda _: nullcontext(), "client": lambda: cache, "close": lambda: None}
            return SimpleNamespace(settings=settings, **open_to_all)

        monkeypatch.setattr("sinks.redis.sink.Server", server)

    yield hold


def second_of(pipeline: Pipeline, *, filling: bool) -> None:
    """Readers see the second generation, the first is gone, and a third may be filled."""
    register = register_of(pipeline, "cache")
    register.create("x")
    (register.generation(2).flow_folder("main") / "checkpoint").mkdir(parents=True)
    register.generation(2).note_views(["order"])
    promoted(register, 2)
    register.begin_retiring(1)
    register.remove(1)
    if filling:
        register.create("lost")


# Its server was flushed, and the third is being filled; its pointer was evicted; and both.
FORGOTTEN = [
    (Cache({"lease:3": "9", "changes:3": "5:a"}), True),
    (Cache({}, b"order:1", b"order:2"), False),
    (Cache({"lease:3": "9"}, b"order:1"), True),
]


@pytest.mark.parametrize(("cache", "filling"), FORGOTTEN)
def test_a_server_that_has_forgotten_brings_no_first_generation_back(
    holds: Callable[[Cache], None], tmp_path: Path, cache: Cache, filling: bool
) -> None:
    """It was made the living one, and offset 0 replayed into the names by which readers read."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    second_of(pipeline, filling=filling)
    before, said = stages(pipeline), list[str]()
    holds(cache)
    adopt(pipeline, "cache", said.append)
    assert (stages(pipeline), said) == (before, [])
    assert before == {2: "living", 3: "filling"} if filling else {2: "living"}


@pytest.mark.parametrize(("cache", "filling"), FORGOTTEN)
def test_a_state_folder_is_not_blamed_for_what_its_server_has_forgotten(
    holds: Callable[[Cache], None], tmp_path: Path, cache: Cache, filling: bool
) -> None:
    """That the target is gone is said next, by which `run` makes it again."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    second_of(pipeline, filling=filling)
    holds(cache)
    generation = register_of(pipeline, "cache").generation(2)
    build = cast(Any, SimpleNamespace(pipeline=pipeline, sink="cache", number=2, generation=generation, token=9))
    folder = generation.flow_folder("main")
    flow = cast(Any, SimpleNamespace(spec=SimpleNamespace(sink="cache", views=["order"]), folder=folder, is_new=False))
    refuse_elsewhere(build, flow)
    assert noted_claim(folder) == 9


@pytest.mark.parametrize(
    ("pointer", "then"),
    [
        ({"lease:1": "3"}, {1: "living"}),
        ({"lease:1": "3", "lease:2": "4"}, {1: "living", 2: "retiring"}),
        ({"generation": "2", "plain": "2", "lease:2": "4"}, {2: "living"}),
    ],
)
def test_a_new_state_folder_takes_over_what_its_server_knows(
    holds: Callable[[Cache], None], tmp_path: Path, pointer: Mapping[str, str], then: Mapping[int, str]
) -> None:
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    holds(Cache(pointer, b"order:1"))
    adopt(pipeline, "cache", lambda _line: None)
    assert stages(pipeline) == then


def test_a_first_generation_that_stands_there_is_still_taken_for_what_readers_see(
    holds: Callable[[Cache], None], tmp_path: Path
) -> None:
    """A server that was put back: what was set up and never promoted is the first."""
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    second_of(pipeline, filling=False)
    holds(Cache({"lease:1": "3"}, b"order:1"))
    adopt(pipeline, "cache", lambda _line: None)
    assert stages(pipeline) == {1: "living", 2: "previous"}


def test_a_topic_that_was_made_anew_under_a_running_flow_is_refused_at_its_next_start(
    starts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was compared as its generation was opened, and not when its flow began again: what stood in the new topic
    before the place in the old one was skipped."""
    _, flow, _ = starts
    topics = ("t", "u", "shop.public.orders")
    pipeline = loads(TEXT.replace("STATE", str(tmp_path)), "shop.yaml", {})
    generation = register_of(pipeline, "cache").generation(1)
    generation.bind(Identity("7", 1, "shop", "s", dict.fromkeys((*topics, "of another flow"), "first"), "h"))
    ids, started = {**dict.fromkeys(topics, "first"), "of another flow": "second"}, list[str]()
    asked = lambda _pipeline, topics, missing_ok: {t: ids[t] for t in topics if t in ids or not missing_ok}  # noqa: E731
    monkeypatch.setattr(opened, "topic_ids", asked)
    for name in ("refuse_elsewhere", "note_made", "check_log"):
        monkeypatch.setattr(flows, name, lambda *_: None)
    flow = replace(flow, spec=replace(flow.spec, topics=dict.fromkeys((*topics, "new"), ())))
    monkeypatch.setattr(Flow, "check", lambda _: None)
    noted = lambda _spark, one: cast(Any, started.append(one.name))  # noqa: E731
    flow, start = flows._ready(Opened(pipeline, generation, [], 1), flow, noted)
    start(cast(Any, None), flow)
    del ids["u"]  # it is not there at this moment: others tell
    start(cast(Any, None), flow)
    assert started == ["main", "main"]
    ids["u"] = "second"
    with pytest.raises(TopicRecreated, match="topic u was deleted and created again"):
        start(cast(Any, None), flow)
    ids["u"] = "first"
    ids["shop.public.orders"] = "second"
    with pytest.raises(TopicRecreated, match=r"topic shop\.public\.orders was deleted"):
        start(cast(Any, None), flow)
    freeze(generation, Table("public", "orders", ()), "its key is another one")
    start(cast(Any, None), flow)  # nothing of it is taken any more, and it may be made anew
    assert started == ["main"] * 3
