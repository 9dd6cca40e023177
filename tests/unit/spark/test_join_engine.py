"""What a batch costs: documents follow the changes that matter, once each, and a fan-out does not hold up a batch."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from cdc.catalogue import Column, Table
from cdc.errors import DecodeError, UnavailableValue
from cdc.join.incoming import LONGEST_JOIN, Incoming, RowMaker
from cdc.join.rows import Stamp, body_of, read, write
from cdc.join.tree import Node
from cdc.join.view import JoinedView
from cdc.records.change import Change, Op
from sinks.rowstore import key_names
from sinks.rowstore.memory.store import MemoryStore
from spark.join import assemble
from spark.join.engine import FILLED, PIECE, Joiner, Made
from spark.join.task import Task
from tests.support.trees import node, table

AIRLINES = Table(
    "public",
    "airlines",
    (Column("carrier", "text", "text"), Column("name", "text", "text"), Column("note", "text", "text")),
    ("carrier",),
)
FLIGHTS = Table(
    "public",
    "flights",
    (Column("id", "integer", "int4"), Column("carrier", "text", "text"), Column("delay", "integer", "int4")),
    ("id",),
)
AIRLINE = Node("airline", "ref", AIRLINES, (("carrier", "carrier"),), (("name", "name"),))
ROOT = Node("card", "root", FLIGHTS, (), (("id", "id"), ("delay", "delay")), (AIRLINE,))
VIEW = JoinedView("card", FLIGHTS, ("id",), ROOT.columns, root=ROOT)


class Log:
    """Gives changes their offsets, and an engine to apply them."""

    def __init__(self, defer_above: int = 2000) -> None:
        self.store = MemoryStore()
        self.joiner = Joiner(VIEW, self.store, defer_above=defer_above)
        self.makers = {name: RowMaker(layout) for name, layout in VIEW.layout.tables.items()}
        self.offset = self.tasks = 0

    def change(self, table: Table, **row: object) -> Incoming:
        self.offset += 1
        key = {name: row[name] for name in table.primary_key}
        change = Change(table.qualified, Op.UPDATE, key, row, self.offset, table.name, 0, self.offset, 0)
        return self.makers[table.qualified].make(change)

    def task(self) -> Task:
        """The next attempt, which is the first one at its batch."""
        self.tasks += 1
        return Task(self.tasks, self.tasks)

    def batch(self, *changes: Incoming) -> list[list[Made]]:
        """Documents of a batch of these changes."""
        task = self.task()
        made = list(self.joiner.process(changes, task, lambda change, error: None))
        self.store.end(task.number)
        return made

    def filled(self, flights: int) -> None:
        self.batch(self.change(AIRLINES, carrier="UA", name="United", note=""))
        self.batch(*(self.change(FLIGHTS, id=n, carrier="UA", delay=0) for n in range(flights)))


def test_a_change_to_a_column_that_no_view_uses_costs_no_document() -> None:
    log = Log()
    log.filled(10)
    assert log.batch(log.change(AIRLINES, carrier="UA", name="United", note="has a new logo")) == []
    (made,) = log.batch(log.change(AIRLINES, carrier="UA", name="United Air Lines", note=""))
    assert len(made) == 10
    documents = [orjson.loads(document or b"") for document in log.joiner.documents(made)]
    assert documents[0] == {"id": 0, "delay": 0, "airline": {"name": "United Air Lines"}}


def test_a_root_that_many_changes_touch_is_made_once() -> None:
    log = Log()
    log.filled(3)
    changes = [log.change(FLIGHTS, id=1, carrier="UA", delay=7), log.change(AIRLINES, carrier="UA", name="U", note="")]
    (made,) = log.batch(*changes)
    assert sorted(item.key for item in made) == ["0", "1", "2"]


RATINGS = Table(
    "public",
    "ratings",
    (Column("id", "integer", "int4"), Column("flight", "integer", "int4"), Column("stars", "integer", "int4")),
    ("id",),
)


def rated() -> Log:
    """Flights with one rating each."""
    log = Log()
    rating = Node("rating", "child", RATINGS, (("id", "flight"),), (("stars", "stars"),), one=True)
    root = replace(ROOT, refs=(), children=(rating,), columns=(("id", "id"),))
    view = JoinedView("card", FLIGHTS, ("id",), root.columns, root=root)
    log.joiner = Joiner(view, log.store)
    log.makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
    log.batch(*(log.change(FLIGHTS, id=n, carrier="UA", delay=0) for n in (1, 2)))
    return log


def shown(log: Log, *changes: Incoming) -> dict[str, object]:
    """Flight -> its rating, of the documents that a batch makes."""
    made = [item for piece in log.batch(*changes) for item in piece]
    return {
        item.key: orjson.loads(document or b"")["rating"]
        for item, document in zip(made, log.joiner.documents(made), strict=True)
    }


def test_of_two_that_there_should_be_one_of_the_newest_is_shown() -> None:
    log = rated()
    assert shown(log, log.change(RATINGS, id=9, flight=1, stars=4)) == {"1": {"stars": 4}}
    # The next one comes before the other's delete does, in another partition; its key is less, its position greater.
    gone = log.change(RATINGS, id=9, flight=1, stars=4)._replace(row=None)
    assert shown(log, log.change(RATINGS, id=3, flight=1, stars=2)) == {"1": {"stars": 2}}
    assert shown(log, gone) == {"1": {"stars": 2}}
    # Two change places: whoever comes first is shown at both, until the other one has come.
    shown(log, log.change(RATINGS, id=9, flight=2, stars=5))
    first, second = log.change(RATINGS, id=3, flight=2, stars=2), log.change(RATINGS, id=9, flight=1, stars=5)
    assert shown(log, second) == {"1": {"stars": 5}, "2": None}
    assert shown(log, first) == {"1": {"stars": 5}, "2": {"stars": 2}}


def test_of_a_root_that_never_came_no_version_is_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rating of a flight that nobody has: each left a key in a store that may not forget."""
    log, faded = rated(), list[str]()
    monkeypatch.setattr(log.store, "fade", lambda pairs: faded.extend(key for key, _ in pairs))
    assert shown(log, log.change(RATINGS, id=9, flight=77, stars=4)) == {}
    assert faded == [key_names.version("77")]
    assert shown(log, log.change(RATINGS, id=8, flight=1, stars=4)) == {"1": {"stars": 4}} and len(faded) == 1


def test_documents_are_made_in_pieces_of_bounded_size() -> None:
    log = Log()
    log.filled(3 * PIECE)
    pieces = log.batch(log.change(AIRLINES, carrier="UA", name="U", note=""))
    assert [len(piece) for piece in pieces] == [PIECE] * 3


def test_fault_39_a_large_fan_out_is_not_made_in_its_batch() -> None:
    log = Log(defer_above=100)
    log.filled(1000)
    other = log.change(FLIGHTS, id=5, carrier="UA", delay=9)
    pieces = log.batch(log.change(AIRLINES, carrier="UA", name="U", note=""), other)
    assert [item.key for piece in pieces for item in piece] == ["5"]
    assert log.store.waiting() == 1000
    made = [item for shard in log.store.claim() for piece in log.joiner.later(shard) for item in piece]
    assert len({item.key for item in made}) == 1000
    newest = {item.key: orjson.loads(d or b"") for item, d in zip(made, log.joiner.documents(made), strict=True)}
    assert newest["5"] == {"id": 5, "delay": 9, "airline": {"name": "U"}}
    log.store.settle(log.store.claim())
    assert log.store.waiting() == 0


def test_versions_grow_with_every_rendering_and_are_never_shared() -> None:
    log = Log()
    log.filled(2)
    seen: set[tuple[str, int]] = set()
    for name in "abc":
        for piece in log.batch(log.change(AIRLINES, carrier="UA", name=name, note="")):
            fresh = {(item.key, item.version) for item in piece}
            assert not fresh & seen
            seen |= fresh
    assert all(version >= 4 for _, version in seen)


def test_a_changed_key_without_its_large_value_is_refused_and_healed_by_the_next_whole_row() -> None:
    """The limit of ``policy.toast: allow``: the value is under the old key, which the event does not name.

    Debezium sends a delete of the old key and a create of the new one; they may be on two partitions, so the old row
    may be gone before the new one is looked at. It is a dead letter, never a document with a hole.
    """
    log = Log()
    log.filled(2)
    refused: list[str] = []

    def batch(change: Change) -> list[Made]:
        try:
            made = log.makers[change.table].make(change)
        except UnavailableValue as error:  # the reader makes a letter of it
            refused.append(f"{change.key['id']}: {error.what}")
            return []
        task = log.task()
        pieces = list(log.joiner.process([made], task, lambda one, error: refused.append(f"{one.key}: {error.what}")))
        log.store.end(task.number)
        return [item for piece in pieces for item in piece]

    def event(op: Op, key: int, offset: int, *missing: str, delay: object = None) -> Change:
        row = None if op is Op.DELETE else {"id": key, "carrier": "UA", "delay": delay}
        return Change("public.flights", op, {"id": key}, row, offset, "flights", 0, offset, 0, missing)

    (gone,) = batch(event(Op.DELETE, 1, 100))
    assert (gone.key, gone.part) == ("1", None)
    assert batch(event(Op.CREATE, 9, 101, "delay", delay="__debezium_unavailable_value")) == []
    (why,) = refused
    assert why.startswith("9: record flights/0/101")
    (made,) = batch(event(Op.UPDATE, 9, 102, delay=7))
    assert log.joiner.documents([made]) == [b'{"id":9,"delay":7,"airline":{"name":"United"}}']
    (again,) = batch(event(Op.UPDATE, 9, 103, "delay", delay="__debezium_unavailable_value")) or (made,)
    assert again is made  # filled from the row that is there now: nothing has changed
    assert len(refused) == 1


class Filling(Log):
    """A fill of the same view."""

    def __init__(self) -> None:
        super().__init__()
        self.joiner = Joiner(VIEW, self.store, filling=True)

    def rows(self, *changes: Incoming) -> None:
        task = self.task()
        self.joiner.load(changes, task, lambda change, error: None)
        self.store.end(task.number)

    def roots(self, *changes: Incoming, crash: bool = False) -> list[Made]:
        task = self.task()
        made = [m for piece in self.joiner.fill(changes, task, lambda change, error: None) for m in piece]
        if not crash:
            self.store.end(task.number)
        return made


def test_a_fill_makes_each_document_once_and_counts_no_versions() -> None:
    log = Filling()
    log.rows(log.change(AIRLINES, carrier="UA", name="United", note=""))
    asked: list[str] = []
    log.store.step = asked.append
    made = log.roots(*(log.change(FLIGHTS, id=n, carrier="UA", delay=0) for n in range(1200)))
    assert [(item.version, item.new) for item in made] == [(FILLED + log.tasks, True)] * 1200
    assert log.joiner.documents(made[:1]) == [b'{"id":0,"delay":0,"airline":{"name":"United"}}']
    assert not [key for key in log.store.servers.nodes[0] if key.startswith("v:")]
    assert asked.count("get") == 1  # the one airline, of which three pieces were made
    log.store.step = lambda _what: None
    live = Joiner(VIEW, log.store)
    change = log.change(AIRLINES, carrier="UA", name="U", note="")
    raised = [m for piece in live.process([change], log.task(), _never) for m in piece]
    assert {item.version for item in raised} == {change.stamp.position}


def _never(change: Incoming, error: Exception) -> None:
    raise AssertionError(f"{change}: {error}")


def test_a_repeated_slice_makes_its_documents_again_and_a_finished_one_does_not() -> None:
    log = Filling()
    changes = [log.change(FLIGHTS, id=n, carrier=None, delay=0) for n in range(3)]
    assert len(log.roots(*changes, crash=True)) == 3
    again = log.roots(*changes, crash=True)
    assert [(item.key, item.new) for item in again] == [("0", False), ("1", False), ("2", False)]
    # The log has forgotten two of the records meanwhile: their rows are pending, and that is enough.
    assert {item.key for item in log.roots(changes[2])} == {"0", "1", "2"}
    assert log.roots(*changes) == []


def test_a_delete_that_a_fill_meets_is_written_only_if_there_may_be_a_document() -> None:
    log = Filling()
    gone = Change("public.flights", Op.DELETE, {"id": 7}, None, 50, "flights", 0, 50, 0)
    made = log.makers["public.flights"].make(gone)
    assert log.roots(made) == []
    log.roots(log.change(FLIGHTS, id=8, carrier=None, delay=0))
    (item,) = log.roots(made._replace(key="8"))
    assert (item.key, item.version, item.part) == ("8", FILLED + log.tasks, None)


def test_remembered_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "CACHE_BYTES", 2000)
    log = Filling()
    log.rows(*(log.change(AIRLINES, carrier=f"A{n}", name="x" * 100, note="") for n in range(100)))
    held = 0
    for n in range(100):
        (item,) = log.roots(log.change(FLIGHTS, id=n, carrier=f"A{n}", delay=0))
        assert orjson.loads(log.joiner.documents([item])[0] or b"")["airline"] == {"name": "x" * 100}
        held = max(held, len(log.joiner.assembler._root.refs[0][0].held))
    assert 1 < held < 20


def test_a_value_too_long_to_join_by_is_refused_when_it_is_read() -> None:
    log = Log()
    (made,) = log.batch(log.change(FLIGHTS, id=1, carrier="x" * LONGEST_JOIN, delay=0))
    assert log.joiner.documents(made) == [b'{"id":1,"delay":0,"airline":null}']
    with pytest.raises(DecodeError, match=r"carrier of public.flights has a value of 1,048,577 characters"):
        log.change(FLIGHTS, id=1, carrier="x" * (LONGEST_JOIN + 1), delay=0)
    assert log.change(AIRLINES, carrier="UA", name="x" * (LONGEST_JOIN + 1), note="").row is not None


def test_a_stored_row_has_room_for_two_of_the_longest_that_it_was_joined_by() -> None:
    longest = "\x01" * LONGEST_JOIN  # six bytes a character in JSON: no other has more
    value = write(Stamp(1, 0, 0), [[longest], [longest]], body_of([longest]))
    assert read(value).replaced == [[longest], [longest]] and read(value).row == [longest]


@pytest.mark.parametrize("inner", ["1", '{"a":1,"a":2}'])
def test_json_that_was_read_is_written_however_deeply_it_is_nested(inner: str) -> None:
    """It was refused by what is left of the stack: a row that was read could be in no document, and its flow stood."""
    orders, notes = table("orders", "id", id="int4", note="int4"), table("notes", "id", id="int4", info="json")
    root = node(orders, refs=(node(notes, "note", "ref", (("note", "id"),)),))
    view = JoinedView("order", orders, ("id",), root.columns, root=root)
    log = Log()
    log.joiner = Joiner(view, log.store)
    log.makers = {name: RowMaker(layout) for name, layout in view.layout.tables.items()}
    for levels in (*range(470, 500, 2), *range(960, 1000, 2), 5_000):
        info = "[" * levels + inner + "]" * levels
        (made,) = log.batch(log.change(notes, id=1, info=info), log.change(orders, id=levels, note=1))
        document = log.joiner.documents(made)[-1]
        assert document is not None and info.replace('"a":1,', "").encode() in document


def test_pieces_grow_and_shrink_with_their_documents() -> None:
    log = Filling()
    made = log.roots(*(log.change(FLIGHTS, id=n, carrier=None, delay=0) for n in range(500)))
    log.joiner.documents(made)
    assert log.joiner.piece == 1000
    for _ in range(3):
        log.joiner.documents(made)
    assert log.joiner.piece == 2000
    log.joiner._learn([b"x" * (1 << 20)] * 20)
    assert log.joiner.piece == 20


def test_a_root_whose_record_is_forgotten_between_the_passes_of_a_fill_gets_its_document_live() -> None:
    """Where the root's table stands elsewhere too, documents are made of keys that are read a second time."""
    log = Log()
    chief = Node("chief", "ref", FLIGHTS, (("delay", "id"),), (("id", "id"),))
    view = JoinedView("card", FLIGHTS, ("id",), ROOT.columns, root=replace(ROOT, refs=(chief,)))
    assert not view.tree.once
    filler = Joiner(view, log.store, filling=True)
    first = log.change(FLIGHTS, id=1, carrier="UA", delay=None)
    task = log.task()
    filler.load([first], task, _never)
    log.store.end(task.number)
    assert list(filler.build([], log.task())) == []  # the cleaner has taken it, because a newer one has come
    live = Joiner(view, log.store)
    newer = log.change(FLIGHTS, id=1, carrier="UA", delay=None)
    (made,) = live.process([newer], log.task(), _never)
    assert [item.key for item in made] == ["1"]
