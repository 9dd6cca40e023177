"""Erases a row from Elasticsearch, from Redis and from the row store: what they hold, and what their files do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from cdc.errors import SinkRefused
from cdc.join.rows import LENGTH, read
from cdc.join.view import JoinedView
from cdc.pipeline import RedisSink, SearchSink
from cdc.view import View
from operations.erase.judged import remove_judged
from operations.erase.note import Back, Note
from operations.erase.places import Kind, Place
from operations.erase.readers import PATIENCE, Build
from operations.erase.subject import Subject
from operations.holding import holding
from operations.rowstore import reading_settings
from sinks.configure import plain_config
from sinks.elasticsearch.expunge import FOR_THE_MOMENT, Expunger, Marks
from sinks.elasticsearch.snapshots import snapshots_of
from sinks.redis.persist import Files, files_of, write_anew
from sinks.redis.settings import Settings, read_settings
from sinks.redis.sink import RedisSink as RedisTarget
from sinks.rowstore import key_names
from sinks.rowstore.contract import Attempt, Swap
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings

INDICES = "indices"
# In a stored row: the length of the foreign keys that it had.
NOTHING = b"000000"


# -- what is there -----------------------------------------------------------------------------------------------------


def look(subject: Subject, builds: Sequence[Build]) -> list[Place]:
    """Look into every index, cache and row store that may hold the row.

    Raises:
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    found: list[Place] = []
    for build in builds:
        if isinstance(build.opened.part, SearchSink):
            found += _indices(subject, build)
        found += _documents(subject, build)
    for kind, sink, login in _logins(subject, builds):
        found += [_of_files(kind, sink, one, anew=False) for one in files_of(login)]
    return found


def look_again(subject: Subject, builds: Sequence[Build]) -> list[Place]:
    """Look into every cache and row store once ``erase_changes`` is done: changes that came since tell nothing of it.

    Raises:
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    return [replace(place, hidden=0, words="") for build in builds for place in _documents(subject, build)]


def _documents(subject: Subject, build: Build) -> Iterator[Place]:
    for view in build.views if isinstance(build.opened.part, RedisSink) else ():
        yield _cached(subject, build, view)
    for view in build.views:
        if isinstance(view, JoinedView):
            yield _stored(subject, build, view)


def _own(subject: Subject, build: Build, view: View) -> int:
    """Whether a view has the row's own document."""
    if view.table.qualified != subject.name:
        return 0
    key = view.document_of(subject.key)
    with holding(build.opened, view) as held:
        return len(held.target.get(view.name, [key]))


def _indices(subject: Subject, build: Build) -> Iterator[Place]:
    with _expunger(build) as server:
        for view in build.views:
            own = _own(subject, build, view)
            index, judge = server.indices(view.name)[0], server.judge(view.name)
            yield _index(build, index, own, server.deleted(index) or 0)
            if judge is not None:
                yield _index(build, judge.index, 0, server.deleted(judge.index) or 0, judge.count())


def _index(build: Build, index: str, own: int, deleted: int, laid_out: int = 0) -> Place:
    words = [f"{deleted} deleted documents that no merge has removed yet"] if deleted else []
    if laid_out:
        words.append(f"{laid_out} documents that were laid out to be judged by standing queries")
    return Place("index", index, build.opened.sink, build.opened.number, own, deleted + laid_out, ", ".join(words))


def _with_documents(server: Expunger, view: View) -> list[str]:
    """Indices that hold documents of a view, or have held some: its own comes first."""
    judge = server.judge(view.name)
    return [server.indices(view.name)[0], *([] if judge is None else [judge.index])]


def _cached(subject: Subject, build: Build, view: View) -> Place:
    with holding(build.opened, view) as held:
        kept = cast(RedisTarget, held.target).kept_changes(view.name)
    words = f"{kept} changes that tell subscribers what documents were" if kept else ""
    return Place("cache", view.name, build.opened.sink, build.opened.number, _own(subject, build, view), kept, words)


def erase_changes(builds: Sequence[Build]) -> None:
    """Forget the changes of documents that have shown the row: each tells what a document was before it.

    All of a view's, not only the row's: Redis keeps the bytes of an entry that was deleted from a stream in its node.

    Raises:
        SinkUnavailable: a server does not answer (transient).
    """
    for build in builds:
        for view in build.views if isinstance(build.opened.part, RedisSink) else ():
            with holding(build.opened, view) as held:
                cast(RedisTarget, held.target).forget_changes(view.name)


def _stored(subject: Subject, build: Build, view: JoinedView) -> Place:
    with _store(build, view) as store:
        [value] = store.get([_row_name(subject, view)])
    stored = None if value is None else read(value)
    found = 0 if stored is None else int(stored.row is not None) + len(stored.replaced)
    words = "foreign keys that it had, beside the mark of its end" if found and stored and stored.row is None else ""
    return Place("row-store", view.name, build.opened.sink, build.opened.number, found, 0, words)


def copies(builds: Sequence[Build]) -> list[Place]:
    """Copies that we know of, which are not touched: topics of matches, snapshots of Elasticsearch's."""
    found = list(_matches(builds))
    for build in builds:
        if isinstance(build.opened.part, SearchSink):
            names = [view.name for view in build.views]
            with _expunger(build) as server:
                indices = [index for name in names for index in server.indices(name)]
            sink, number = build.opened.sink, build.opened.number
            try:
                there = snapshots_of(plain_config(build.opened.pipeline, sink, number, names), indices)
            except SinkRefused as error:
                note = f"nobody could look for snapshots: {error.what}"
                found.append(Place("backup", "snapshot repositories", sink, number, note=note))
                continue
            for repository, snapshots in there.items():
                note = f"snapshots {', '.join(snapshots[:20])} hold the index; whoever keeps them must remove them"
                found.append(Place("backup", repository, sink, number, found=len(snapshots), note=note))
    return found


def _matches(builds: Sequence[Build]) -> Iterator[Place]:
    """Topics of the user's own into which matches are written, with documents that may show the row: each once."""
    told = set[str]()
    for build in builds:
        for view in build.views:
            queries = build.opened.pipeline.queries.get(view.name)
            if queries is None or queries.changes != build.opened.sink:
                continue
            for name, one in queries.push.items():
                if one.topic is not None and one.topic not in told:
                    told.add(one.topic)
                    note = (
                        f"queries.{view.name}.push.{name} writes documents of view {view.name} into it, and it is not "
                        "compacted: whoever keeps it must remove what it holds, or wait until that is too old for it"
                    )
                    yield Place("matches", one.topic, build.opened.sink, note=note)


# -- and goes ----------------------------------------------------------------------------------------------------------


def mark_indices(subject: Subject, builds: Sequence[Build]) -> dict[str, Marks]:
    """Make durable what is deleted in every index: index -> what ``erase_indices`` has to know.

    The earlier it is called, the less that has to wait; but after ``erase_changes``: documents that tell of the row
    could be laid out anew from them.

    Raises:
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    found = {}
    for build in builds:
        if isinstance(build.opened.part, SearchSink):
            with _expunger(build) as server:
                for view in build.views:
                    remove_judged(subject, server, view.name)
                    for index in _with_documents(server, view):
                        if server.deleted(index) is not None:
                            found[f"{build.opened.sink}/{index}"] = server.written(index)
    return found


def erase_indices(
    subject: Subject, builds: Sequence[Build], note: Note, marks: Mapping[str, Marks], seconds: float
) -> list[Place]:
    """Have deleted documents leave the files of every index; what is there then.

    Raises:
        EraseUnfinished: some are left by then (transient); settings are as they were.
        SinkUnavailable, SinkRefused: a server does not answer, or refuses.
    """
    found = []
    for build in builds:
        if not isinstance(build.opened.part, SearchSink):
            continue
        with _expunger(build) as server:
            for view in build.views:
                for number, index in enumerate(_with_documents(server, view)):
                    name = f"{build.opened.sink}/{index}"
                    if name in marks:
                        with note.changed(INDICES, name, server.were(index), _back(build)):
                            server.put(index, FOR_THE_MOMENT)
                            server.expunge(index, marks[name], subject.say, seconds)
                    found.append(_index(build, index, 0 if number else _own(subject, build, view), 0))
    return found


def _back(build: Build) -> Back:
    def back(name: str, settings: Mapping[str, str | None]) -> None:
        with _expunger(build) as server:
            server.put(name.partition("/")[2], settings)

    return back


def put_back_indices(builds: Sequence[Build], note: Note) -> None:
    """Put back the settings of indices that a killed one has left."""
    known = {build.opened.sink: build for build in builds if isinstance(build.opened.part, SearchSink)}

    def back(name: str, settings: Mapping[str, str | None]) -> None:
        sink = name.partition("/")[0]
        if sink in known:
            _back(known[sink])(name, settings)

    note.put_back(INDICES, back)


def erase_marks(subject: Subject, builds: Sequence[Build]) -> None:
    """The mark of a deleted row keeps the foreign keys that it had, for a replay that is over by now.

    Raises:
        SinkUnavailable: the row store does not answer (transient).
    """
    for build in builds:
        for view in build.views:
            if isinstance(view, JoinedView):
                with _store(build, view) as store:
                    _bare_mark(store, subject, _row_name(subject, view))


def _bare_mark(store: RedisRowStore, subject: Subject, name: str) -> None:
    [value] = store.get([name])
    if value is None or (stored := read(value)).row is not None or not stored.replaced:
        return
    pending = f"{store.beside(name)}u:{subject.topic}/{stored.stamp.partition}"
    [waits] = store.pipeline([("SISMEMBER", pending, name)])
    if not waits:  # else a task has yet to act on them
        store.swap([Swap(name, stored.head, value[:LENGTH] + NOTHING, True)], Attempt())


def erase_files(subject: Subject, builds: Sequence[Build], seconds: float) -> list[Place]:
    """Have every Redis write its files anew; a place for each node that keeps some.

    Raises:
        EraseUnfinished: one is not done in time (transient). SinkUnavailable: no answer (transient).
    """
    found = []
    for kind, sink, login in _logins(subject, builds):
        for one in write_anew(login, subject.say, seconds):
            found.append(_of_files(kind, sink, one, anew=one.refused is None))
    return found


def _of_files(kind: Kind, sink: str | None, one: Files, *, anew: bool) -> Place:
    there = one.log or one.dump
    note = one.unseen or None
    if one.refused is not None:
        note = f"it did not write its files anew ({one.refused}): whoever runs it must, or wait until it does"
    words = f"its {one.kinds}" if there else "it says that it keeps no files"
    hidden = int((there or one.refused is not None) and not anew)
    return Place(kind, f"files of {one.node}", sink, None, 0, hidden, words, note=note)


def _logins(subject: Subject, builds: Sequence[Build]) -> list[tuple[Kind, str | None, Settings]]:
    """Every Redis once."""
    found: dict[tuple[Kind, str], tuple[Kind, str | None, Settings]] = {}
    for build in builds:
        opened = build.opened
        if isinstance(opened.part, RedisSink):
            views = [view.name for view in build.views]
            login = read_settings(plain_config(opened.pipeline, opened.sink, opened.number, views))
            found.setdefault(("cache", login.url), ("cache", opened.sink, login))
    if subject.pipeline.row_store is not None and any(isinstance(one, JoinedView) for b in builds for one in b.views):
        login = RedisRowStore(StoreSettings(**reading_settings(subject.pipeline))).login
        found["row-store", login.url] = "row-store", None, login
    return list(found.values())


@contextmanager
def _expunger(build: Build) -> Iterator[Expunger]:
    opened = build.opened
    server = Expunger(plain_config(opened.pipeline, opened.sink, opened.number, [view.name for view in build.views]))
    try:
        yield server
    finally:
        server.close()


@contextmanager
def _store(build: Build, view: JoinedView) -> Iterator[RedisRowStore]:
    store = RedisRowStore(build.opened.row_store(view, **PATIENCE))
    try:
        yield store
    finally:
        store.close()


def _row_name(subject: Subject, view: JoinedView) -> str:
    return key_names.row(view.layout.tables[subject.name].number, subject.key)
