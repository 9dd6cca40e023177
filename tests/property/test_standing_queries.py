"""Standing queries against brute force: whatever changes, and wherever a matcher is cut, each thing is told once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from operations.standing.judge import Looked, fold, judged
from sinks.redis.matches import Kept, read_kept, write_kept
from tests.support.standing import folded
from tests.support.standing_model import Model, matches

KEYS, NAMES, NUMBERS = st.sampled_from("abcde"), st.sampled_from(("p", "q", "r")), st.integers(0, 9)
CUTS = st.sampled_from(("", "", "before", "behind"))
WRITES = st.tuples(st.just("write"), KEYS, st.none() | NUMBERS)
STEPS = st.tuples(st.just("step"), st.integers(0, 1), CUTS, st.sampled_from((1, 2, 40)))
QUERIES = st.tuples(st.just("put"), NAMES, NUMBERS, NUMBERS) | st.tuples(st.just("remove"), NAMES)
LOSSES = st.tuples(st.sampled_from(("promote", "forget", "reindex")))
# A shared machine may pause any test for longer than hypothesis would allow one example.
patient = settings(deadline=None, max_examples=150)


def do(model: Model, action: tuple[Any, ...], version: int) -> None:
    match action:
        case ("write", key, n):
            model.changes.write(key, version, n) if n is not None or key in model.changes.documents else None
        case ("put", name, low, high):
            model.standings.put(name, low, high)
        case ("remove", name):
            model.standings.remove(name)
        case ("step", which, cut, count):
            for left in range(count, 0, -1):
                model.step(which, cut if left == 1 else "")
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
    assert all(model.memory.known[key].version == model.changes.documents[key][0] for key in model.memory.known)
    assert model.memory.held is not None and model.memory.held.standing.keys() == model.standings.queries.keys()
    return model


@patient
@given(actions=st.lists(WRITES | STEPS | QUERIES | LOSSES, max_size=50))
def test_what_is_told_adds_up_whatever_happens(actions: list[tuple[Any, ...]]) -> None:
    model = Model()
    for version, action in enumerate(actions, 1):
        do(model, action, version)
    ended(model)


@patient
@given(
    ranges=st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS), min_size=1),
    actions=st.lists(WRITES | STEPS, max_size=50),
)
def test_every_version_is_told_once_while_queries_stay(
    ranges: dict[str, tuple[int, int]], actions: list[tuple[Any, ...]]
) -> None:
    model = Model()
    for name, (low, high) in ranges.items():
        model.standings.put(name, low, high)
    ended(model)  # all of them stand
    for version, action in enumerate(actions, 1):
        do(model, action, version)
    told = Counter(
        (name, one["key"], one["version"], op) for one in ended(model).told() for name, op in one["queries"].items()
    )
    wanted = Counter[tuple[str, str, int, str]]()
    for entry in model.changes.log:
        for name, query in ranges.items():
            was, now = matches(entry.before, query), matches(entry.after, query)
            if was or now:
                wanted[name, entry.key, entry.version, "changed" if was and now else "entered" if now else "left"] += 1
    assert told == wanted


@given(
    names=st.frozensets(NAMES),
    asked=st.frozensets(NAMES) | st.none(),
    found=st.frozensets(NAMES),
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
