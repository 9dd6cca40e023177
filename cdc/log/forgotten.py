"""Letters that are cleared because what they were about is gone, or was put right by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from cdc.letters.deadletter import DeadLetter
from cdc.log.letter_log import LetterLog
from cdc.pipeline import Pipeline


def forget_sinks(pipeline: Pipeline, sinks: Collection[str]) -> None:
    """Forget all letters of sinks that are dropped: the next generation 1 would be told theirs.

    Args:
        pipeline: the loaded file.
        sinks: their names.

    Raises:
        KafkaError: the letters may not be read (terminal).
        KafkaUnavailable: no answer (transient). Where there is no topic of letters, nothing happens.
    """
    _forget(pipeline, lambda letter: letter.sink in sinks)


def forget_written(
    pipeline: Pipeline, sink: str, number: int, view: str, written: Iterable[str], left: Iterable[str] = ()
) -> None:
    """Forget letters of documents that a repair has written: at their very version, as nothing else does.

    Args:
        pipeline: the loaded file.
        sink: the sink's name.
        number: its generation.
        view: the view's name.
        written: keys of documents; gone through once, and not kept.
        left: those of them that were not written after all.

    Raises:
        KafkaError: the letters may not be read (terminal). KafkaUnavailable: no answer (transient).
    """
    log = _log(pipeline)
    mine = {
        logged.letter.key: (key, logged.at)
        for key, logged in (() if log is None else log.book)
        if (logged.letter.sink, logged.letter.view, logged.letter.table) == (sink, view, None)
        and logged.letter.generation in (None, number)
    }
    if log is not None and mine:
        meant = {key for key in written if key in mine}
        log.clear(dict(mine[key] for key in meant.difference(left)))


def _forget(pipeline: Pipeline, meant: Callable[[DeadLetter], bool]) -> None:
    log = _log(pipeline)
    if log is not None:
        log.clear({key: logged.at for key, logged in log.book if meant(logged.letter)})


def _log(pipeline: Pipeline) -> LetterLog | None:
    """The letters, read; None where there is no topic of them."""
    log = LetterLog(pipeline)
    if not log.there():
        return None
    log.follow()
    return log
