"""Whether a view's `window` or `match` makes sense, as far as the file alone can tell."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, near, shown
from cdc.pipeline.timing import Match, Timing, Window
from cdc.pipeline.views import STATEFUL, View
from cdc.timed import measure_of, micros_of

# What a document of such a view can't have besides.
_NOT_BESIDE = ("key", "columns", "fields", "refs", "children", "aggregates")
_FOR_EVER = "its state would grow for ever"
# Windows that one event may be in: each costs a row.
MOST_WINDOWS = 500
# Names that documents of windows and matches have anyway.
OF_WINDOWS = frozenset(("grouping", "window_start", "window_end", "late"))
OF_MATCHES = frozenset(("key", "at", "followed", "then", "count", "since"))


def check_timing(pipeline: Pipeline, name: str, view: View) -> Iterator[Wrong]:
    """What does not fit.

    Args:
        pipeline: the file.
        name: the view's.
        view: the view.
    """
    said = [word for word in STATEFUL if getattr(view, word) is not None]
    if len(said) > 1:
        what = f"views.{name}: {' and '.join(said)} exclude each other"
        yield Wrong(("views", name, said[1]), what, "make two views of it")
    timing: Timing | None = view.window or view.match
    if timing is None:
        return
    word = "window" if view.window else "match"
    path: Path = ("views", name, word)
    where = f"views.{name}.{word}"
    for key in _NOT_BESIDE:
        if getattr(view, key):
            what = f"views.{name}.{key}: a document of a {word} is made of what `{word}` says"
            yield Wrong(("views", name, key), what, "say it there")
    yield from _clock(where, path, timing)
    if isinstance(timing, Window):
        yield from _window(where, path, timing)
    if isinstance(timing, Match):
        yield from _match(where, path, timing, view)


def _clock(where: str, path: Path, timing: Timing) -> Iterator[Wrong]:
    if timing.delay is None:
        what = f"{where}: without `delay` there is no watermark, nothing could ever be closed, and {_FOR_EVER}"
        yield Wrong(path, what, "say how far events may be out of order: delay: 10 minutes")
    if (timing.sent is None) != (timing.received is None):
        what = f"{where}: a device's clock is corrected by two moments, `sent` and `received`"
        yield Wrong(path, what, "name both columns, or none")
    if timing.late == "correct" and timing.correct_for is None:
        what = f"{where}: late events that count for ever need all windows for ever, and {_FOR_EVER}"
        yield Wrong(path, what, "say for how long: correct_for: 7 days")
    if timing.late == "drop" and timing.correct_for is not None:
        yield Wrong((*path, "correct_for"), f"{where}.correct_for: late events are dropped", "write late: correct")


def _window(where: str, path: Path, window: Window) -> Iterator[Wrong]:
    if (window.size is None) == (window.gap is None):
        what = f"{where}: a window has a `size`, or it is a session with a `gap`; one of the two"
        yield Wrong(path, what, "size: 1 hour")
    if window.slide is not None and window.size is None:
        yield Wrong((*path, "slide"), f"{where}.slide: sessions do not slide", "take it out")
    elif window.slide is not None and window.size is not None:
        size, slide = micros_of(window.size), micros_of(window.slide)
        if slide > size:
            what = f"{where}.slide: more than `size`: events between two windows would be in none"
            yield Wrong((*path, "slide"), what, f"at most {window.size}")
        elif size // slide > MOST_WINDOWS:
            what = f"{where}.slide: an event would be in {size // slide} windows, and {MOST_WINDOWS} are allowed"
            yield Wrong((*path, "slide"), what, "a longer `slide`, or a shorter `size`")
    yield from _groups(where, path, window)
    for name, said in window.measures.items():
        if isinstance(why := measure_of(said), str):
            what = f"{where}.measures.{name}: {why}"
            yield Wrong((*path, "measures", name), what, "see docs/windows.md")


def _groups(where: str, path: Path, window: Window) -> Iterator[Wrong]:
    for index, names in enumerate(window.groupings):
        for one in names:
            if one not in window.by:
                what = f"{where}.groupings: {shown(one)} is not in `by`"
                yield Wrong((*path, "groupings", index), what, near(one, window.by, "add it there"))
        if names in window.groupings[:index] or len(set(names)) < len(names):
            yield Wrong((*path, "groupings", index), f"{where}.groupings: named twice", "name each once")
    for name in [*window.by, *window.measures]:
        if name in OF_WINDOWS:
            yield Wrong(path, f"{where}: documents have {name} anyway", "choose another name")
    for name in window.by.keys() & window.measures.keys():
        yield Wrong((*path, "measures", name), f"{where}: {name} is in `by` and in `measures`", "rename one of them")


def _match(where: str, path: Path, match: Match, view: View) -> Iterator[Wrong]:
    if match.within is None:
        what = f"{where}: without `within` every event would be kept for those that may follow, and {_FOR_EVER}"
        yield Wrong(path, what, "say how long: within: 10 minutes")
    if (match.then is None) == (match.count == 0):
        what = f"{where}: either `then`, the events that follow, or `count`, how many of `first`"
        yield Wrong(path, what, "count: 3")
    if match.count == 1:
        yield Wrong(
            (*path, "count"), f"{where}.count: one is every event", "2 or more, or a plain view of these events"
        )
    if match.count and match.keep != "all":
        yield Wrong(
            (*path, "keep"), f"{where}.keep: of a threshold there are the documents that reach it", "take it out"
        )
    if view.where is not None:
        what = f"views.{view.root}.where: `first` and `then` say which events they take"
        yield Wrong(("views", path[1], "where"), what, "say it there")
    for part, event in (("first", match.first), ("then", match.then)):
        for name in OF_MATCHES.intersection(event.fields if event else ()):
            if part == "first":
                yield Wrong((*path, part, "fields"), f"{where}: documents have {name} anyway", "choose another name")
