"""Standing queries against brute force: whatever changes, and wherever a matcher is cut, each thing is told once."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operations.standing.judge import Looked, fold, judged
from sinks.redis.stream.matches import Kept, read_kept, write_kept
from tests.support.standing import folded
from tests.support.standing_model import Model, matches

KEYS, NAMES, NUMBERS = "abcde", "pqr", range(10)
SEEDS = st.integers(0, 2**32)
# A shared machine may pause any test for longer than hypothesis would allow one example.
patient = settings(deadline=None, max_examples=200)
Action = tuple[Any, ...]


def actions(chance: random.Random, *, losses: bool) -> Iterator[Action]:
    """What happens, some sixty times: long rests are as likely as a few steps, which may be cut."""
    kinds = ["write"] * 6 + ["step"] * 3 + ["rest"] + (["put", "put", "remove", "loss"] if losses else [])
    for _ in range(60):
        match chance.choice(kinds):
            case "write":
                yield "write", chance.choice(KEYS), None if chance.random() < 0.25 else chance.choice(NUMBERS)
            case "step":
                yield "step", chance.randrange(2), chance.choice(("", "before", "behind", "before+", "behind+"))
            case "rest":
                yield "rest", chance.randrange(2)
            case "put":
                yield "put", chance.choice(NAMES), chance.choice(NUMBERS), chance.choice(NUMBERS)
            case "remove":
                yield "remove", chance.choice(NAMES)
            case "loss":
                yield (chance.choice(("promote", "forget", "reindex")),)


def do(model: Model, action: tuple[Any, ...], version: int) -> None:
    match action:
        case ("write", key, n):
            model.changes.write(key, version, n) if n is not None or key in model.changes.documents else None
        case ("put", name, low, high):
            model.standings.put(name, low, high)
        case ("remove", name):
            model.standings.remove(name)
        case ("step", which, cut):
            model.step(which, cut)
        case ("rest", which):
            model.until_idle(which)
        case ("promote",):
            model.changes.promote()
        case ("forget",):
            model.changes.forget()
        case ("reindex",):
            model.standings.index += "'"


def ended(model: Model) -> Model:
    """After all is done: the events say who matches, and nothing is told twice."""
    model.until_idle()
    assert folded(model.told()) == model.expected()
    assert {key: set(kept.names) for key, kept in model.memory.known.items()} == model.expected()
    newest: dict[str, int] = {}
    for one in model.told():
        assert one["version"] >= newest.get(one["key"], 0), "a document never goes back"
        newest[one["key"]] = one["version"]
    last = {(one["key"], name): one["version"] for one in model.told() for name in one["queries"]}
    for key, names in model.expected().items():
        version = model.changes.documents[key][0]
        assert model.memory.known[key].version == version
        assert {last[key, name] for name in names} == {version}, "its newest version was told"
    assert model.memory.held is not None and model.memory.held.standing.keys() == model.standings.queries.keys()
    return model


# Each of these histories has found something: a removed query that had not been judged, a version of before, a gap
# without queries, a step that was done and not answered.
@patient
@example(seed=1466)
@example(seed=22)
@example(seed=70)
@example(seed=510)
@given(seed=SEEDS)
def test_what_is_told_adds_up_whatever_happens(seed: int) -> None:
    model, chance = Model(), random.Random(seed)
    writers, versions = random.Random(seed + 1), itertools.count(1)

    def write() -> None:
        """Somebody writes while a page of documents is read."""
        if writers.random() < 0.3:
            key, n = writers.choice(KEYS), None if writers.random() < 0.25 else writers.choice(NUMBERS)
            do(model, ("write", key, n), next(versions))

    model.changes.meanwhile = write
    for action in actions(chance, losses=True):
        do(model, action, next(versions))
    model.changes.meanwhile = lambda: None
    ended(model)


@patient
@given(seed=SEEDS)
def test_every_version_is_told_once_while_queries_stay(seed: int) -> None:
    model, chance = Model(), random.Random(seed)
    for name in NAMES:
        model.standings.put(name, chance.choice(NUMBERS), chance.choice(NUMBERS))
    ended(model)  # all of them stand
    for version, action in enumerate(actions(chance, losses=False), 1):
        do(model, action, version)
    told = Counter(
        (name, one["key"], one["version"], op) for one in ended(model).told() for name, op in one["queries"].items()
    )
    wanted = Counter[tuple[str, str, int, str]]()
    for entry in model.changes.log:
        for name, query in model.standings.queries.items():
            was, now = matches(entry.before, query), matches(entry.after, query)
            if was or now:
                wanted[name, entry.key, entry.version, "changed" if was and now else "entered" if now else "left"] += 1
    assert told == wanted


@pytest.mark.parametrize("change", ["remove", "put"])
@pytest.mark.parametrize("pages", range(5))
def test_a_query_that_goes_before_all_was_judged_leaves_whom_it_had_matched(pages: int, change: str) -> None:
    """What its first walk had told by then was never taken back: who subscribes had them as matches for ever."""
    model = Model()
    for version, key in enumerate(KEYS, 1):
        model.changes.write(key, version, 5)
    model.until_idle()
    model.standings.put("p", 0, 9)
    model.matcher()._looked = -1e9  # a second later
    for _ in range(pages):
        model.step()
    entered = {one["key"] for one in model.told()}
    assert len(entered) == min(2 * pages, len(KEYS)), "two documents a page"
    model.standings.remove("p") if change == "remove" else model.standings.put("p", 7, 9)
    left = {one["key"] for one in ended(model).told() if one["queries"] == {"p": "left"}}
    assert left == entered


@given(
    names=st.frozensets(st.sampled_from(NAMES)),
    asked=st.frozensets(st.sampled_from(NAMES)) | st.none(),
    found=st.frozensets(st.sampled_from(NAMES)),
    gone=st.booleans(),
)
def test_a_look_says_nothing_of_queries_that_were_not_asked(
    names: frozenset[str], asked: frozenset[str] | None, found: frozenset[str], gone: bool
) -> None:
    known = Kept(1, names) if names else None
    found &= asked if asked is not None else found
    looked = Looked("k", 1, None if gone else b"{}", found, asked, fresh=False)
    kept, ops = judged(known, looked)
    if not gone:
        assert all(name in (asked if asked is not None else {*names, *found}) for name in ops)
    assert (kept.names if kept else frozenset()) == (
        frozenset() if gone else found if asked is None else (names - asked) | found
    )
    again, told = fold({} if kept is None else {"k": kept}, [looked])
    assert not again and not told, "a repeated look tells nothing"


@given(
    version=st.integers(0, 2**63 - 1),
    names=st.frozensets(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)),
)
def test_what_is_known_survives_its_text(version: int, names: frozenset[str]) -> None:
    if names:
        assert read_kept(write_kept(Kept(version, names))) == Kept(version, names)
