"""One subscriber's walk: from a cursor, or from everything there is, to the newest change; a page at a time.

Documents and changes are told in turns. Each page of documents was read at one moment together with the place of the
newest change that is in it; before it, all changes up to that place are told, and after the last page those that follow
the last place. So whoever takes everything in order never sees a document go back, and has missed nothing, without
anybody keeping a list of what was sent (docs/decisions/push.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc.errors import SinkUnavailable
from cdc.paging import PageSize
from operations.push import events
from operations.push.cursor import RESET, Cursor, number_of, parse_cursor
from operations.push.events import Told
from operations.push.follows import Follows, Placed, Sees
from sinks.contract import Held
from sinks.redis.read import Moving, NoChanges
from sinks.redis.stream.tail import Standing

# Changes of one page, at the most: of large documents they are fewer.
PAGE = 500
BEGUN, UNKNOWN, BEHIND = "this is the beginning", "this cursor is none of this stream", "the next changes are gone"
PROMOTED, ANEW, READ_ANEW = (
    "readers see another generation now",
    "the stream was made anew",
    "readers were moved meanwhile",
)
CHOSEN = "another filter, or other queries, choose what is sent"
UNTOLD = "not everything was told to its end"
CUT = "what there is could not be read to its end"


class Walk:
    """Where one subscriber is.

    Args:
        tail: reads the view's changes, or its matches.
        view: its name.
        sees: what is to be seen of them.
        cursor: to go on from; anything that is none begins with ``reset``; None: the beginning.
        documents: whether everything that is there is told first; else only what comes from now on.
        why: it begins, where there is no cursor.

    Attributes:
        live: all that was there has been told, and what comes follows.
    """

    def __init__(
        self,
        tail: Follows,
        view: str,
        sees: Sees,
        cursor: str | None = None,
        *,
        documents: bool = True,
        why: str = BEGUN,
    ) -> None:
        self._tail, self._view, self._sees, self._documents = tail, view, sees, documents
        self._cursor = None if cursor is None else parse_cursor(cursor)
        none = UNTOLD if cursor == RESET else UNKNOWN
        self._why = why if cursor is None else none if self._cursor is None else ""
        self._pages: Iterator[tuple[bytes, list[Held]]] | None = None
        self._held: tuple[bytes, list[Held]] | None = None  # a page of documents that is next
        self._size = PageSize(PAGE)
        self._empty = False  # nothing was told since the last reset
        self.live = False

    @property
    def cursor(self) -> Cursor:
        """Up to where everything was told. Only once it has begun."""
        assert self._cursor is not None
        return self._cursor

    def step(self) -> list[Told]:
        """What is to be told next; once ``live``, nothing means that there is nothing new.

        Raises:
            SinkUnavailable: the sink keeps no changes yet (transient).
            Moving: keys are being renamed by a promotion; the same again later begins anew.
            redis.RedisError: the server does not answer; the same again goes on, or begins anew.
        """
        try:
            if self._why:
                return self._begin()
            if self._pages is not None:
                return self._page(self._pages)
            return self._follow()
        except NoChanges:
            return self._lost()
        except Moving:
            self._why, self._pages, self.live = READ_ANEW, None, False
            raise

    def advance(self, entries: Sequence[Placed]) -> list[Told]:
        """Changes that follow the cursor, as they are told."""
        found = seen(entries, self._sees, self.cursor)
        self.passed(behind(self.cursor, entries))
        return found

    def moved(self, tail: Follows) -> None:
        """The view is kept at another place by now: it begins anew there."""
        self._tail, self._pages, self._held, self.live = tail, None, None, False
        self._why = self._why or PROMOTED

    def passed(self, cursor: Cursor) -> None:
        """It stands there: what lies between was told by somebody else."""
        self._cursor = cursor

    def _begin(self) -> list[Told]:
        """``reset``, and the place from which on changes matter."""
        standing = self._tail.standing()
        self._cursor = start_of(self._tail, standing, f"no changes of view {self._view} are kept now")
        # What was begun and told nothing need not be taken back.
        found = [] if self._empty else [events.reset(self._why)]
        self._why, self._empty = "", True
        if not self._documents:
            self.live, self._empty = True, False
            return [*found, events.ready(self._cursor, self._view)]
        self._pages, self._held = self._tail.pages(standing), None
        return found

    def _page(self, pages: Iterator[tuple[bytes, list[Held]]]) -> list[Told]:
        """The next page of documents, behind all changes up to its place; bare of cursors: nobody could go on there."""
        if self._held is None:
            try:
                self._held = next(pages, None)
            except Exception:  # asked again it would say that this was the last page
                self._why, self._pages = CUT, None
                raise
        if self._held is None:
            self._pages, self.live, self._empty = None, True, False
            return [events.ready(self.cursor, self._view)]
        at, documents = self._held
        if number_of(at) > self.cursor.number:
            entries = [one for one in self._after() if number_of(one.place) <= number_of(at)]
            if not entries:
                raise NoChanges  # the one at that place is gone already
            found = self.advance(entries)
        else:
            self._held, found = None, list(self._sees.snapshot(documents))
        self._empty = self._empty and not found
        return [one._replace(cursor=None) for one in found]

    def _follow(self) -> list[Told]:
        asked = self._size.count
        entries = self._after()
        found = self.advance(entries)
        if not self.live and len(entries) < asked:
            self.live = True
            found.append(events.ready(self.cursor, self._view))
        return found

    def _after(self) -> Sequence[Placed]:
        cursor = self.cursor
        entries = self._tail.after(Standing(cursor.generation, cursor.mark), cursor.place, self._size.count)
        self._size.read(entry.size for entry in entries)
        return entries

    def _lost(self) -> list[Told]:
        """Why the cursor leads nowhere; the next step begins anew."""
        now, before = self._tail.standing(), self.cursor
        self._pages, self.live = None, False
        if now.generation != before.generation:
            self._why = PROMOTED
        else:
            self._why = BEHIND if now.mark == before.mark else ANEW
        return []


def start_of(tail: Follows, standing: Standing, what: str) -> Cursor:
    """The place of the newest change, from which on changes count.

    Args:
        tail: reads them.
        standing: which stream readers see now, as ``tail`` has told it.
        what: that there are none, for the error.

    Raises:
        SinkUnavailable: the sink keeps none yet, or no more (transient).
    """
    try:
        newest = tail.newest(standing) if standing.mark is not None else b""
    except NoChanges:
        newest = b""
    if standing.mark is None or not newest:
        raise SinkUnavailable(
            what,
            means="`changes` stands in the file, but nothing that runs has taken it up, or the server has evicted them",
            fix="start `headwater run FILE` again",
        )
    return Cursor(standing.generation, standing.mark, newest)


def seen(entries: Sequence[Placed], sees: Sees, cursor: Cursor) -> list[Told]:
    """Entries of a cursor's stream, as a subscriber sees them."""
    shown = (sees.change(entry, cursor.generation, cursor.mark) for entry in entries)
    return [one for one in shown if one is not None]


def behind(cursor: Cursor, entries: Sequence[Placed]) -> Cursor:
    """The cursor after entries that follow one; itself when there are none."""
    return Cursor(cursor.generation, cursor.mark, entries[-1].place) if entries else cursor
