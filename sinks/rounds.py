"""Several items of one key in one call: which of them are sent, and in what order. Pure; every sink's ``write`` asks.

Spark cuts batches anew between two stages, so the pieces that held each key once come together in one call. A sink
sends requests in parallel and repeats some of them; of two items of one key with equal versions the earlier could stay.
So no request, and no two that are under way together, may name a key twice.

What holds afterwards is what would hold had each item been written by a call of its own, in the order of the list:

- the newest version wins, and of equal ones the later item;
- a delete without a version takes what is there at its turn, so it is sent before or after the winner, in a round of
  its own. Several without anything between them are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sinks.contract import UNVERSIONED, Item


class Rounds(NamedTuple):
    """Places in a list of items.

    Attributes:
        sent: what is to be sent, a round after the one before has been answered; in each of them a key comes once.
        superseded: what need not be sent, because an item of the same key overrules it; its answer is STALE.
    """

    sent: list[list[int]]
    superseded: list[int]


def rounds(items: Sequence[Item], places: Iterable[int]) -> Rounds:
    """Cut a call's items into rounds. As a rule there is one, of all of them.

    Args:
        items: the call's.
        places: those of them that may be sent at all, ascending.
    """
    whole = list(places)
    if len({items[place].key for place in whole}) == len(whole):
        return Rounds([whole] if whole else [], [])
    by_key: dict[str, list[int]] = {}
    for place in whole:
        by_key.setdefault(items[place].key, []).append(place)
    sent: list[list[int]] = []
    superseded: list[int] = []
    for of_key in by_key.values():
        chosen = _chosen(items, of_key) if len(of_key) > 1 else of_key
        for turn, place in enumerate(chosen):
            if turn == len(sent):
                sent.append([])
            sent[turn].append(place)
        superseded += [place for place in of_key if place not in chosen]
    return Rounds(sent, superseded)


def _chosen(items: Sequence[Item], places: Sequence[int]) -> list[int]:
    """What is sent of one key, in order: the winner, and the last delete without a version on each side of it."""
    versioned = [place for place in places if items[place].version != UNVERSIONED]
    winner = max(versioned, key=lambda place: (items[place].version, place), default=-1)
    plain = [place for place in places if items[place].version == UNVERSIONED]
    before = [place for place in plain if place < winner][-1:]
    after = [place for place in plain if place > winner][-1:]
    return [*before, *([winner] if versioned else []), *after]
