"""Versions of documents that are laid out to be judged by standing queries, where a search server has no percolator.

A matcher deletes its own as soon as they are judged; then they are deleted documents, as those of the documents' index
are. What it holds in memory it may still lay out, and one that was killed has left what it had. So nothing is counted
as deleted before whoever is at work has ended what he had begun.
"""

from __future__ import annotations

import time

from cdc.ages import at_least
from operations.erase.subject import Subject
from operations.standing.note import read_note
from sinks.elasticsearch.expunge import Expunger

# A request with as many queries as may stand takes more than a minute: an older note is of a matcher that is gone.
AT_WORK_SECONDS = 120.0
LOOK_SECONDS, SAY_SECONDS = 0.2, 5.0


def remove_judged(subject: Subject, server: Expunger, view: str) -> None:
    """Have nothing laid out that was read before now. The changes of a cache that show the row are gone already: what
    is read from now on does not have it.

    Raises:
        SinkUnavailable, SinkRefused: the server does not answer, or refuses.
    """
    judge = server.judge(view)
    if judge is None:
        return
    _await_matcher(subject, view)
    if marks := judge.laid_out():
        # Some may be of a batch that is judged now, and would match nothing: its matcher removes them himself.
        _await_matcher(subject, view)
        judge.remove(marks)


def _await_matcher(subject: Subject, view: str) -> None:
    """Wait until a view's matcher, if there is one, has ended what it does: it leaves a note between two batches."""
    before = read_note(subject.pipeline, view)
    if before is None:
        return
    told = time.monotonic() + SAY_SECONDS
    until = time.monotonic() + AT_WORK_SECONDS - at_least(before.at, time.time())
    while time.monotonic() < until and read_note(subject.pipeline, view) == before:
        if time.monotonic() > told:
            subject.say(f"view {view}: waiting until its documents are held against standing queries")
            told = time.monotonic() + SAY_SECONDS
        time.sleep(LOOK_SECONDS)
