"""The letters that stand, read and judged: what every verb about letters begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cdc.errors import ConfigError
from cdc.letters.book import Logged
from cdc.letters.deadletter import DeadLetter
from cdc.log.letter_log import LetterLog
from cdc.pipeline import Pipeline
from operations.letters.judge import judge
from operations.letters.openings import Openings
from operations.letters.wanted import Wanted, table_of
from operations.state.folder import chosen_sinks, register_of


@dataclass
class FoundLetters:
    """What was asked for.

    Attributes:
        log: where they came from, to clear them or to read them whole.
        standing: by record key, the newest first.
        healed: those that were asked for and stand no more, though nobody has cleared them yet.
        elsewhere: letters of generations that were not asked for.
        unasked: sinks that could not be asked whether theirs are healed, and why.
    """

    log: LetterLog
    standing: dict[bytes, Logged] = field(default_factory=dict)
    healed: dict[bytes, Logged] = field(default_factory=dict)
    elsewhere: int = 0
    unasked: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[DeadLetter]:
        return (logged.letter for logged in self.standing.values())


def find_letters(pipeline: Pipeline, wanted: Wanted, openings: Openings | None = None) -> FoundLetters:
    """Read the letters that are meant, and look which of them stand.

    Args:
        pipeline: the loaded file.
        wanted: which.
        openings: of who goes on with them; its own if left out.

    Raises:
        ConfigError: a sink, view or generation that is not there (terminal).
        KafkaError, KafkaUnavailable: the letters can't be read.
    """
    numbers = _numbers(pipeline, wanted)
    found = FoundLetters(LetterLog(pipeline))
    asked: dict[bytes, Logged] = {}
    for key, logged in found.log.follow():
        letter = logged.letter
        number = numbers.get(letter.sink)
        if number is None or not wanted(letter, table_of(pipeline, letter)):
            continue
        if letter.generation in (None, number):
            asked[key] = logged
        else:
            found.elsewhere += 1
    judged = judge(pipeline, asked, (openings or Openings(pipeline)).build) if asked else None
    for key, logged in reversed(asked.items()):
        which = found.healed if judged is not None and key in judged.healed else found.standing
        which[key] = logged
    found.unasked = {} if judged is None else judged.unasked
    return found


def _numbers(pipeline: Pipeline, wanted: Wanted) -> dict[str, int]:
    """The generation of each sink whose letters are meant."""
    # A sink of whole tables has views that the file does not name.
    if not any(sink.tables is not None for sink in pipeline.sinks.values()):
        for view in wanted.views:
            if view not in pipeline.views:
                raise ConfigError(f"no view {view} in the pipeline", fix=f"choose from {', '.join(pipeline.views)}")
    registers = {sink: register_of(pipeline, sink) for sink in chosen_sinks(pipeline, wanted.sinks)}
    if wanted.generation is None:
        return {sink: register.living() for sink, register in registers.items()}
    if len(registers) > 1:
        raise ConfigError("--generation is of one sink", fix="say which: --sink NAME")
    return {sink: register.get(wanted.generation).number for sink, register in registers.items()}
