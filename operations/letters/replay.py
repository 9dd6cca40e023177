"""``letters replay``: the keys of letters are written again as they are now, and letters of those that were taken go.

Not the event that was refused, which is old by then, but what a repair would write: of a view of one table the row's
newest record, of a joined one what the row store makes of it. Each key is answered for by itself, so one that is
refused again holds none of the others back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import HeadwaterError
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.letters.words import hidden
from cdc.pipeline import Pipeline
from cdc.saying import Say, to_nobody
from operations.letters.found import FoundLetters, find_letters
from operations.letters.openings import Openings
from operations.letters.wanted import Wanted
from operations.pace import Pace
from operations.state.folder import chosen_sinks, register_of
from operations.state.pausing import refuse_paused

# Keys written at once; for each page of a view of one table its whole topic is gone through.
PAGE = 10_000
# Of those that are left, so many are named.
NAMED = 1_000


@dataclass
class Replay:
    """How a replay went.

    Attributes:
        asked: letters that stood, or were healed and not cleared yet.
        taken: the sink holds their key as it is now.
        gone: their row is gone, or the view's condition leaves it out; so is the document.
        healed: a later change had mended them already.
        left: those that stand, and why.
    """

    asked: int = 0
    taken: int = 0
    gone: int = 0
    healed: int = 0
    left: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self, pipeline: Pipeline, *, values: bool) -> dict[str, Any]:
        """As ``--json`` shows it."""
        return {
            "pipeline": pipeline.name,
            "at": time.time(),
            "asked": self.asked,
            "taken": self.taken,
            "gone": self.gone,
            "healed": self.healed,
            "left": len(self.left),
            "why": [one if values else one | {"why": hidden(one["why"])} for one in self.left[:NAMED]],
        }


def replay_letters(
    pipeline: Pipeline,
    wanted: Wanted,
    *,
    values: bool = False,
    say: Say = to_nobody,
) -> dict[str, Any]:
    """Write the keys of letters again, as they are now.

    Args:
        pipeline: the loaded file.
        wanted: which letters.
        values: whether a reason is told in full, which quotes what rows hold.
        say: told a line now and then.

    Raises:
        StateError: a sink is paused (terminal; nothing was written).
        HeadwaterError: the letters can't be read, or cleared. What goes wrong with one sink is told in ``why``: also
            that it was paused meanwhile.
    """
    openings = Openings(pipeline, say)
    found = find_letters(pipeline, wanted, openings)
    work = Replay(asked=len(found.standing) + len(found.healed), healed=len(found.healed))
    if found.standing:
        refuse_paused(pipeline, sorted({letter.sink for letter in found}), "nothing was written")
    found.log.clear({key: logged.at for key, logged in found.healed.items()})
    with openings.opened():
        for group, letters in _groups(pipeline, wanted, found).items():
            _group(openings, work, found, group, letters, say)
    return work.to_dict(pipeline, values=values)


def _groups(
    pipeline: Pipeline, wanted: Wanted, found: FoundLetters
) -> Mapping[tuple[str, int, str], dict[bytes, Logged]]:
    """Letters by sink, generation and view, the oldest first: a key that has waited long comes first."""
    groups: dict[tuple[str, int, str], dict[bytes, Logged]] = defaultdict(dict)
    living = {sink: register_of(pipeline, sink).living() for sink in chosen_sinks(pipeline, wanted.sinks)}
    for key, logged in sorted(found.standing.items(), key=lambda item: item[1].at):
        letter = logged.letter
        groups[letter.sink, letter.generation or living[letter.sink], letter.view][key] = logged
    return groups


def _group(
    openings: Openings,
    work: Replay,
    found: FoundLetters,
    group: tuple[str, int, str],
    letters: Mapping[bytes, Logged],
    say: Say,
) -> None:
    from operations.letters.rewrite import written_again

    sink, number, view = group
    say(f"{sink}{f', {view}' if view else ''}: {len(letters):,} letters")
    pace, done, keys = Pace(say, "letters"), 0, list(letters)
    for start in range(0, len(keys), PAGE):
        page = {key: letters[key] for key in keys[start : start + PAGE]}
        plain = {key: logged.letter for key, logged in page.items()}
        try:
            # It has no lease that a pause could wait for, and may take minutes.
            refuse_paused(openings.pipeline, [sink], "no more was written")
            outcomes: Mapping[bytes, str | bool] = written_again(openings, sink, number, view, plain)
        except HeadwaterError as error:
            outcomes = dict.fromkeys(page, error.what)
        found.log.clear({key: page[key].at for key, outcome in outcomes.items() if not isinstance(outcome, str)})
        for key, outcome in outcomes.items():
            if isinstance(outcome, str):
                work.left.append(_told(plain[key], outcome))
            elif outcome:
                work.taken += 1
            else:
                work.gone += 1
        done += len(page)
        pace.at(done, len(keys))


def _told(letter: DeadLetter, why: str) -> dict[str, Any]:
    return {"sink": letter.sink, "view": letter.view, "table": letter.table, "key": letter.key, "why": why}
