"""Everything that is wrong, not only the first: steps that do not need each other are all done, then one error raised.

Somebody who writes a view and is told one typing error a try gives up at the fifth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cdc.errors import ConfigError, PipelineFileError


class Gathering:
    """Collects the errors of steps.

    Attributes:
        wrong: what has been found so far, a single problem each.
    """

    def __init__(self) -> None:
        self.wrong: list[ConfigError] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """A block whose ConfigError is kept for ``end``; what it was to make is not there then."""
        try:
            yield
        except ConfigError as error:
            self.wrong += parts_of(error)

    def end(self) -> None:
        """Raise what was found.

        Raises:
            ConfigError: a step's own error if there is one, one for all of them if there are several (terminal).
        """
        if self.wrong:
            raise all_of(self.wrong)


def parts_of(error: ConfigError) -> list[ConfigError]:
    """The single problems of an error that ``all_of`` made; else the error itself."""
    return list(error.parts) or [error]


def all_of(errors: Iterable[ConfigError]) -> ConfigError:
    """One error that says what several say, once each and in the order in which they come."""
    single = list({str(part): part for error in errors for part in parts_of(error)}.values())
    if len(single) == 1:
        return single[0]
    lines = [part.what + (f"; {part.fix}" if part.fix else "") for part in single]
    means = list(dict.fromkeys(part.means for part in single if part.means))
    made = PipelineFileError("\n".join(lines), means="; ".join(means))
    made.parts = tuple(single)
    return made
