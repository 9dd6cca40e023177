"""Dead letters: what they say, which stand, which are meant, what of them is no value."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError, StateError
from cdc.keys import document_id
from cdc.letters.book import Book, Logged
from cdc.letters.deadletter import DeadLetter
from cdc.letters.words import LEFT_OUT, bare, cause_of, hidden
from cdc.pipeline import Pipeline, loads
from cdc.stateful import StatefulView
from cdc.view import View
from connectors.topics import dead_letter_topic
from operations.edits.changes import changes_between
from operations.letters import judge as module
from operations.letters.wanted import Wanted, moment, table_of
from operations.letters.watch import LetterWatch
from operations.push.letters import WantedLetters
from operations.state.letters import Count, letter_counts, note_count, refuse_more_letters
from sinks.contract import Held
from spark.reading.entries import EntryDecoder
from spark.reading.spec import FlowSpec
from spark.write import letter_of
from tests.support.entry_cases import SPEC, TABLE, entry, event, records

SECRET = "se cret-4711"
FILE = """\
version: 1
name: p
source: {{database: d, user: u, tables: [public.t, other.u]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{v: {{root: t}}, w: {{root: other.u}}}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1:1", view: v}}}}
policy: {{dead_letters: {{{letters}}}}}
engine: {{state_dir: {folder}}}
"""


def pipeline(folder: Path, letters: str = "") -> Pipeline:
    return loads(FILE.format(folder=folder, letters=letters), "p.yaml")


def letter(key: str = "1", reason: str = "no", **more: Any) -> DeadLetter:
    return replace(DeadLetter("s", "v", key, 8, reason, topic="p.public.t", partition=0, offset=3), **more)


# -- words -------------------------------------------------------------------------------------------------------------

REASONS = {
    f"400 document_parsing_exception: [1:23] failed to parse field [n] of type [integer] in document with id "
    f"'{SECRET}'. Preview of field's value: 'it's {SECRET}' (For input string: \"a\"{SECRET}\")": (
        "400 document_parsing_exception: […] failed to parse field [n] of type [integer] in document with id … "
        "(For input string: …)",
        "400 document_parsing_exception, field [n]",
    ),
    f"400 document_parsing_exception: [1:2] failed to parse field [d] of type [date] (failed to parse date field "
    f"[{SECRET}] with format [strict_date])": (
        "400 document_parsing_exception: […] failed to parse field [d] of type [date] (failed to parse date field […] "
        "with format […])",
        "400 document_parsing_exception, field [d]",
    ),
    "400 illegal_argument_exception: Limit of total fields [5] has been exceeded while adding new fields [2]": (
        "400 illegal_argument_exception: Limit of total fields […] has been exceeded while adding new fields […]",
        "400 illegal_argument_exception",
    ),
    f'Spark could not compute field x: `a / b`, where: `a > \'z\'` for {{"a":"{SECRET}"}}; it has no document': (
        "Spark could not compute field x: `a / b`, where: `a > 'z'`",
        "Spark could not compute field x: `a / b`, where: `a > 'z'`",
    ),
    f"record t.public.x/0/55 is not an event of public.x: it is of '{SECRET}'; look": (
        "record is not an event of public.x: it is of …; look",
        "record t.public.x/0/55 is not an event of public.x",
    ),
    f"record a/0/1: column n of public.t does not hold a integer: '{SECRET}'; run": (
        "record: column n of public.t does not hold a integer: …; run",
        "record a/0/1: column n of public.t",
    ),
    "the document has 555 bytes, this sink takes at most 44": (
        "the document has N bytes, this sink takes at most 44",
        "the document has 555 bytes, this sink takes at most 44",
    ),
    "the key must have 1 to 511 bytes, this one has 600": (
        "the key must have 1 to 511 bytes, this one has N",
        "the key must have 1 to 511 bytes, this one has 600",
    ),
    "the key must be at most 8192 bytes long; it has 9000": (
        "the key must be at most 8192 bytes long; it has N",
        "the key must be at most 8192 bytes long; it has 9000",
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_cause_is_what_letters_have_in_common_and_quotes_nothing(reason: str) -> None:
    cause, kept = REASONS[reason]
    assert cause_of(reason) == cause
    assert bare(reason) in (kept, f"{kept}; {LEFT_OUT}")
    assert SECRET not in cause_of(reason) + bare(reason)


def test_only_our_own_whole_words_keep_their_numbers() -> None:
    said = "the document has 5 bytes, this sink takes at most 4"
    assert cause_of(f"{said}; 4711") == "the document has N bytes, this sink takes at most N; N"
    assert hidden(f"the sink refused it: {said}") == said.replace("5", "N", 1).join(("the sink refused it: ", ""))


def test_of_words_that_nobody_knows_nothing_is_kept() -> None:
    assert bare(f"OOM {SECRET}") == LEFT_OUT
    assert hidden(f"the sink refused it: 400 x_exception: '{SECRET}'") == "the sink refused it: 400 x_exception: …"


@pytest.mark.parametrize(
    "value",
    [
        f"patient [x] {SECRET}",
        f"[[{SECRET}] [y]] {SECRET}",
        f"{SECRET} :-[",
        f"a ] {SECRET}",
        f"a ]] {SECRET} ] b",
        f"see field [secret] {SECRET}",
        f"O 'Neil {SECRET}",
        f'say "hi {SECRET}',
        f"{{ {SECRET}",
    ],
)
def test_a_value_with_brackets_or_quotes_of_its_own_is_left_out_whole(value: str) -> None:
    """What stood behind its own bracket was shown to who may not see rows."""
    before = "400 document_parsing_exception: failed to parse field [d] of type [date] (failed to "
    behind = f"parse date field [{value}] with format [strict_date])"
    id_too = f"{before}{behind} in document with id '7'"
    # Where a reason was cut behind a bracket that closes nothing, nobody can tell.
    cut = [] if "a ]" in value else [(before + behind)[:at] for at in range(len(before), len(id_too), 3)]
    for reason in (before + behind, id_too, *cut):
        assert "cret" not in cause_of(reason) + bare(reason), (reason, cause_of(reason))
        assert "failed to parse field [d] of type [date] (failed to" in cause_of(reason)
        assert bare(reason).startswith("400 document_parsing_exception, field [d]")


def test_a_value_whose_end_was_cut_is_left_out_whole() -> None:
    cut = f"400 x_exception: Preview of field's value: 'it's {SECRET}"
    assert cause_of(cut) == "400 x_exception: Preview of field's value: …" == cause_of(f"{cut}'")
    assert cause_of(f"400 x_exception: can't parse {{{SECRET}") == "400 x_exception: can't parse …"
    assert cause_of(f"400 x_exception: can't parse id'{SECRET}'") == "400 x_exception: can…"


WORD = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="N…"), min_size=6, max_size=12)


@given(secret=WORD, n=st.integers(0, 99))
def test_values_that_servers_quote_are_not_kept(secret: str, n: int) -> None:
    value = f"\x01{secret}"
    said = (
        f"400 document_parsing_exception: [1:{n}] failed to parse field [f] of type [long] in document with id "
        f"'{value}'. Preview of field's value: '{value}' (For input string: \"{value}\")"
    )
    told = orjson.loads(letter(reason=said, document=value.encode()).without_values().to_json())
    assert value not in "".join(str(part) for name, part in told.items() if name != "key")
    assert told["document"] is None and told["document_bytes"] == len(value.encode())
    assert value not in cause_of(said)


# -- which stand -------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([b"a", b"b"])
# A letter comes, somebody looks and will clear what he has seen then, or a look's tombstones come to the topic.
STEPS = st.lists(st.tuples(st.sampled_from(["letter", "look", "clear"]), KEYS), max_size=25)

Record = tuple[bytes, bytes | None, int, int | None]


def compacted(log: list[Record]) -> list[Record]:
    newest = {key: at for key, _, at, _ in log}
    return [record for record in log if newest[record[0]] == record[2]]


def read(log: list[Record]) -> Book:
    book = Book()
    for key, value, at, through in log:
        book.take(key, value, at, through)
    return book


@given(steps=STEPS)
def test_a_tombstone_takes_only_what_was_seen_and_compaction_takes_no_more(steps: list[tuple[str, bytes]]) -> None:
    log: list[Record] = []
    looked: dict[bytes, int] = {}
    standing: dict[bytes, int] = {}  # key -> the letter's number
    for number, (step, key) in enumerate(steps):
        if step == "letter":
            log.append((key, letter(f"{number}").to_json(), len(log), None))
            standing[key] = number
        elif step == "look" and key in standing:
            looked[key] = read(log).standing[key].at
        elif step == "clear" and key in looked:
            through = looked.pop(key)
            log.append((key, None, len(log), through))
            if key in standing and read(log[:-1]).standing[key].at <= through:
                del standing[key]
    book = read(log)
    assert {key: int(one.letter.key) for key, one in book} == standing
    for key in book.covered:  # what `write_covered_again` does
        at = book.standing[key].at
        log.append((key, log[at][1], len(log), None))
    again = read(log)
    assert not again.covered
    assert {key: int(one.letter.key) for key, one in read(compacted(log))} == standing


def test_a_book_keeps_no_documents_and_no_more_than_it_may() -> None:
    book = Book(most=2)
    for number, key in enumerate((b"a", b"b", b"c")):
        book.take(key, letter(document=b"{}" * 50, reason="r" * 3000).to_json(), number)
    assert book.standing.keys() == {b"a", b"b"} and book.beyond == 1
    assert {(one.letter.document, one.letter.document_bytes, len(one.letter.reason)) for _, one in book} == {
        (None, 100, 1000)
    }
    book.take(b"a", None, 3)
    book.take(b"x", b"no letter", 4)
    assert len(book) == 1
    book.forget_before(10**15)
    assert len(book) == 0


TEXT = st.text(max_size=4, alphabet="ab|\\g1")


@given(
    one=st.tuples(TEXT, TEXT, TEXT, st.none() | st.integers(1, 3), st.none() | TEXT),
    other=st.tuples(TEXT, TEXT, TEXT, st.none() | st.integers(1, 3), st.none() | TEXT),
)
def test_letters_of_two_things_never_share_a_key(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    def key(of: tuple[Any, ...]) -> bytes:
        sink, view, row, generation, table = of
        made = DeadLetter(sink, view, row, 1, "r", None, "t", 0, 7, generation=generation, table=table)
        return made.record_key()

    def meant(of: tuple[Any, ...]) -> tuple[Any, ...]:
        # Without a key the record's place is all there is; before generations were told, tables were not either.
        # Of a view, and no table, an empty key is a document's.
        sink, view, row, generation, table = of
        if not row and not (view and generation is not None and table is None):
            return (sink, generation)
        return of if generation is not None else of[:4]

    assert (key(one) == key(other)) == (meant(one) == meant(other))


def test_a_document_whose_key_is_an_empty_text_has_one_letter() -> None:
    first, second = (letter("", generation=1, topic="t", partition=0, offset=offset) for offset in (7, 8))
    assert first.record_key() == second.record_key() == b"s|v||g1"
    assert not first.keyless and letter("", generation=1, table="public.t").keyless


def test_a_childs_letter_does_not_take_the_place_of_a_roots() -> None:
    root, child = letter(generation=2), letter(generation=2, table="public.parts")
    assert root.record_key() != child.record_key()
    assert document_id(["s", "v", "1", "g2"]).encode() == root.record_key()


# -- how they are made -------------------------------------------------------------------------------------------------


def letters_of(spec: FlowSpec, *pairs: tuple[bytes | None, bytes | None]) -> list[DeadLetter]:
    return EntryDecoder(spec).decode(cast(pa.RecordBatch, records(*pairs))).letters


def test_a_record_of_a_known_row_is_a_letter_of_its_document() -> None:
    timed = replace(TABLE.columns[1], type_name="timestamp with time zone", base_type="timestamptz")
    table = replace(TABLE, columns=(TABLE.columns[0], timed))
    views = {"t": View.identity(table)}
    spec = replace(SPEC, views=views, tables={"p.public.t": table}, generation=3)
    key, value = event(7, "no time", 96)
    told = orjson.loads(value)
    told["source"] |= {"txId": 5121}
    [one] = letters_of(spec, (key, orjson.dumps(told)))
    assert (one.view, one.key, one.table) == ("t", "7", None)
    assert (one.generation, one.version, one.tx_id) == (3, 96, 5121)


def test_a_record_that_says_nothing_is_a_letter_of_its_row() -> None:
    [broken, keyless] = letters_of(SPEC, (b'{"id":7}', b"{"), (None, b"{"))
    assert (broken.view, broken.key, broken.table, broken.version) == ("", '{"id":7}', TABLE.qualified, 0)
    assert (keyless.key, keyless.table) == ("", TABLE.qualified)
    assert broken.record_key() != keyless.record_key()


def test_an_entrys_letter_knows_its_generation_and_whether_it_is_a_delete() -> None:
    spec = replace(SPEC, generation=4)
    assert letter_of(spec, entry(5, 1), "no").generation == 4
    assert [letter_of(spec, entry(5, 1, document), "no").deleting for document in (b"{}", None)] == [False, True]


# -- which are meant ---------------------------------------------------------------------------------------------------


def test_letters_are_chosen_by_what_they_are_about(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    one = letter(reason="400 x: Limit of total fields [5]", at_ms=2_000)
    table = table_of(made, one)
    assert table == "public.t"
    for wanted in (
        Wanted(),
        Wanted(sinks=["s"], views=["v"], tables=["t"], keys=["0", "1"], since=2.0),
        Wanted(tables=["public.t"]),
        Wanted(cause="total FIELDS"),
        Wanted(cause=r"fields \[…\]"),
    ):
        assert wanted(one, table), wanted
    for wanted in (Wanted(sinks=["x"]), Wanted(tables=["u"]), Wanted(keys=["2"]), Wanted(since=2.1), Wanted(cause="z")):
        assert not wanted(one, table), wanted
    assert table_of(made, letter(topic="", view="w")) == "other.u"
    assert table_of(made, letter(table="a.b")) == "a.b"


@pytest.mark.parametrize(
    ("tables", "outbox", "found"),
    [
        ("other.u, public.t", "", "public.t"),
        ("other.u, sales.t", "", "sales.t"),
        ('"Sales.*", other.u', "", "Sales.t"),
        ('"a.*", "b.*"', "", "public.t"),
        ('"Sales.*", "b.*"', ", outbox: {table: Sales.t, types: [a]}", "Sales.t"),
    ],
)
def test_a_root_without_its_schema_is_the_captured_table(tmp_path: Path, tables: str, outbox: str, found: str) -> None:
    text = FILE.format(folder=tmp_path, letters="").replace("[public.t, other.u]", f"[{tables}]{outbox}")
    assert table_of(loads(text, "p.yaml"), letter(topic="p-events.a")) == found


@pytest.mark.parametrize("wrong", ["[", "(?=x)", r"(a)\1", "((a{100}){100}){100}", "\udc80"])
@pytest.mark.parametrize("kind", [Wanted, WantedLetters])
def test_a_cause_that_is_no_expression_is_named(kind: Callable[..., object], wrong: str) -> None:
    with pytest.raises(ConfigError, match="no regular expression"):
        kind(cause=wrong)


def test_a_search_for_a_cause_ends_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own stopped the whole server, for ever: a request of who may only read was enough."""
    script = (
        "from tests.unit.operations.test_letters import letter\n"
        "from operations.letters.wanted import Wanted\n"
        "print(Wanted(cause='(.|.)*%00', whole=True)(letter(reason='400 x: ' + 'a' * 3_000 + '\\udc80'), 'public.t'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
    slow = Wanted(cause=r"\PN{900}")
    monkeypatch.setattr("cdc.letters.cause.MAX_SECONDS", 0.05)
    with pytest.raises(ConfigError, match="took more than"):
        for _ in range(1_000):
            slow(letter(reason="400 x: 1"), "public.t")


def test_what_a_reason_quotes_is_looked_at_for_who_may_see_it() -> None:
    """Who may not could ask letter by letter: is there a reason with `name: '[a-m]`?"""
    [(reason, _), *_] = REASONS.items()
    for cause in (SECRET[3:6], "Preview.*" + SECRET[:4]):
        assert Wanted(cause=cause, whole=True)(letter(reason=reason), "public.t")
        assert not Wanted(cause=cause)(letter(reason=reason), "public.t")
    for said in (*REASONS, "x " + "".join(map(chr, range(32, 127)))):
        link = re.escape(cause_of(said))  # as the page's have it
        assert Wanted(cause=link)(letter(reason=said), "public.t"), link


def test_moments() -> None:
    assert moment("90s", 1_000) == 910 and moment("2h", 10_000) == 2_800 and moment("7d", 700_000) == 95_200
    assert moment("1970-01-01T00:01:00+00:00") == 60
    for wrong in ("yesterday", "2 h", "1w", "99999-01-01"):
        with pytest.raises(ConfigError, match="no moment"):
            moment(wrong)


# -- what the sink says ------------------------------------------------------------------------------------------------


class Shelf:
    """A target that holds these versions; of ``gone`` only the version."""

    def __init__(self, gone: tuple[str, ...] = (), **held: int) -> None:
        self.held, self.gone = held, gone

    def versions(self, _view: str, keys: list[str]) -> dict[str, int]:
        return {key: self.held[key] for key in keys if key in self.held}

    def get(self, _view: str, keys: list[str]) -> dict[str, Held]:
        there = self.held.keys() - set(self.gone)
        return {key: Held(key, self.held[key], b"{}") for key in keys if key in there}


@pytest.mark.parametrize(
    ("one", "shelf", "healed"),
    [
        (letter(), Shelf(), False),  # never taken
        (letter(), Shelf(a=9), False),
        (letter("a"), Shelf(a=7), False),  # an older document is there still
        (letter("a"), Shelf(a=8), False),  # a transaction's earlier change of the row, at the same position
        (letter("a"), Shelf(a=9), True),
        (letter("a"), Shelf(("a",), a=16), True),  # deleted since
        (letter("a"), Shelf(("a",), a=8), False),  # deleted with the change that Spark SQL could not compute
        (letter("a", version=0), Shelf(a=9), False),
        (letter("a", version=-1, deleting=True), Shelf(), True),  # nothing is there that would have to go
        (letter("a", version=-1, deleting=True), Shelf(a=9), False),
        (letter("a", version=-1, deleting=True), Shelf(("a",), a=9), True),
    ],
)
def test_a_letter_goes_by_a_later_write_or_delete(one: DeadLetter, shelf: Shelf, healed: bool) -> None:
    assert module._documents(cast(Any, shelf), "v", {b"k": one}) == ({b"k"} if healed else set())


def test_letters_of_a_generation_that_is_gone_go_and_of_a_server_that_is_away_stay(tmp_path: Path) -> None:
    def away(sink: str, number: int) -> Any:
        raise ConfigError(f"{sink} {number} is away")

    made = pipeline(tmp_path)
    one = {
        b"gone": Logged(letter(sink="cache", generation=9), 0),
        b"mine": Logged(letter(sink="cache", generation=1), 1),
        b"old": Logged(letter(sink="cache"), 2),
        b"theirs": Logged(letter(sink="unknown"), 3),
    }
    judged = module.judge(made, one, away)
    assert judged.healed == {b"gone"} and judged.unasked == {"cache": "cache 1 is away"}


@pytest.mark.parametrize("deleting", [False, True])
def test_a_delete_of_the_empty_key_is_healed_and_a_document_of_it_stands(
    deleting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "holding", lambda *_: nullcontext(SimpleNamespace(target=Shelf())))
    build = cast(Any, SimpleNamespace(views=[View.identity(TABLE)]))
    one = letter("", view="t", generation=1, deleting=deleting)
    # As it was kept when an empty key was taken for none.
    assert module._healed(build, {b"sink|topic|0|7|g1": one}) == ({b"sink|topic|0|7|g1"} if deleting else set())


def test_a_letter_of_an_event_is_not_healed_by_a_document_that_has_its_rows_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A match of the key 7 is not the event 7: what was refused of that stays refused."""
    monkeypatch.setattr(module, "holding", lambda *_: nullcontext(SimpleNamespace(target=Shelf(**{"7": 99}))))
    events = StatefulView(**vars(View.identity(TABLE)))
    for view, healed in ((View.identity(TABLE), {b"k"}), (events, set())):
        build = cast(Any, SimpleNamespace(views=[view]))
        assert module._healed(build, {b"k": letter('{"id":7}', view="", table=TABLE.qualified)}) == healed
        assert not module._healed(build, {b"k": letter('{"id":7}', view="t", table=TABLE.qualified)})


# -- the file, the topic, the count ------------------------------------------------------------------------------------


def test_how_long_and_what_is_kept_is_the_files(tmp_path: Path) -> None:
    before = pipeline(tmp_path)
    days = pipeline(tmp_path, "keep_days: 3")
    assert before.policy.dead_letters.values and dead_letter_topic(before).config["retention.ms"] == "2592000000"
    assert dead_letter_topic(days).config["retention.ms"] == "259200000"
    # `apply` sets the topic; what letters hold is decided by who writes them.
    assert changes_between(before, days).restart == ()
    assert changes_between(before, pipeline(tmp_path, "values: false")).restart == ("policy.dead_letters",)


def test_the_count_is_of_the_generation_that_readers_see(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    assert letter_counts(made) == {"cache": None}
    note_count(made, "cache", {1: 3})  # it has never run: nothing is written
    assert letter_counts(made) == {"cache": None}
    (tmp_path / "p" / "cache").mkdir(parents=True)
    note_count(made, "cache", {1: 3, 2: 5}, more=[2])
    count = letter_counts(made)["cache"]
    assert count == Count(3, count.at if count else 0.0)
    note_count(made, "cache", {2: 5}, more=[1])
    count = letter_counts(made)["cache"]
    assert count is not None and (count.standing, count.more, count.least) == (0, True, 1)


def test_readers_are_not_sent_to_a_generation_that_lacks_more_rows(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    refuse_more_letters(made, "cache", 2)  # nobody has counted
    (tmp_path / "p" / "cache").mkdir(parents=True)
    note_count(made, "cache", {1: 3, 2: 3})
    refuse_more_letters(made, "cache", 2)
    note_count(made, "cache", {1: 3, 2: 1271})
    with pytest.raises(StateError, match="1,271 dead letters of generation 2 stand, and 3 of generation 1"):
        refuse_more_letters(made, "cache", 2)
    note_count(made, "cache", {1: 3, 2: 1271}, more=[1])
    refuse_more_letters(made, "cache", 2)  # nobody knows that readers' own has fewer


# -- the watch ---------------------------------------------------------------------------------------------------------


def test_each_letter_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.letters.watch.TURN", 2)
    watch = LetterWatch(cast(Any, None))
    mine = {key.encode(): Logged(letter(key), at) for at, key in enumerate("abc")}
    turns = [sorted(watch._turn(mine)) for _ in range(3)]
    assert turns[0] == [b"a", b"b"] and b"c" in turns[1] and set().union(*turns) == set(mine)
    mine.pop(b"b")
    assert watch._turn(mine).keys() <= mine.keys()


def test_letters_beyond_what_is_remembered_are_looked_at_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They would stand until `run` is started again, and `status` say that there are more."""
    topic: list[tuple[bytes, bytes | None]] = [
        (key.encode(), letter(key, at_ms=int(time.time() * 1000)).to_json()) for key in "abcdef"
    ]

    def read(_kafka: object, _topic: str, _partition: int, start: int) -> Any:
        for at, (key, value) in list(enumerate(topic))[max(start, 0) :]:
            yield SimpleNamespace(offset=lambda at=at: at, key=lambda key=key: key, value=lambda value=value: value)

    monkeypatch.setattr("operations.letters.watch.MOST", 4)
    monkeypatch.setattr("cdc.log.letter_log.Kafka", lambda _pipeline: SimpleNamespace(describe=lambda topics: topics))
    monkeypatch.setattr("cdc.log.letter_log.records", read)
    monkeypatch.setattr("cdc.log.letter_log._through", lambda _message: None)
    watch, made = LetterWatch(cast(Any, None)), pipeline(tmp_path)
    book = watch._follow(made).book
    assert (sorted(book.standing), book.beyond) == ([b"a", b"b", b"c", b"d"], 2)
    topic += [(b"a", None), (b"b", None)]
    assert watch._follow(made).book.beyond == 2, "not for each that goes: much is read again"
    topic += [(b"c", None)]
    book = watch._follow(made).book
    assert (sorted(book.standing), book.beyond) == ([b"d", b"e", b"f"], 0), "the cleared ones are not compacted yet"


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(("letter", "letter", "tombstone")), st.integers(1, 9)),
        max_size=40,
    ),
    st.integers(1, 4),
)
def test_a_book_that_goes_back_until_all_is_remembered_is_as_one_without_limits(
    steps: list[tuple[str, str, int]], most: int
) -> None:
    topic = [(key.encode(), letter(key, version=n).to_json() if kind == "letter" else None) for key, kind, n in steps]

    def read(book: Book, start: int) -> Book:
        for at, (key, value) in list(enumerate(topic))[start:]:
            book.take(key, value, at)
        return book

    whole, book = read(Book(), 0), read(Book(most), 0)
    before = -1
    while book.beyond_from is not None and len(book) < most:
        start = book.back()
        assert start is not None and start > before, "each time it comes further"
        before = start
        read(book, start)
    if book.beyond_from is None:
        assert {key: logged.at for key, logged in book} == {key: logged.at for key, logged in whole}
        assert book.covered == whole.covered


def test_a_letter_of_an_older_version_that_comes_late_does_not_take_the_newer_ones_place() -> None:
    """Two jobs make one document. The sink holds the newer one's delete, which would heal the older one's letter."""
    book = Book()
    book.take(b"a", letter(version=9).to_json(), 0)
    book.take(b"a", letter(version=7).to_json(), 1)
    assert (book.standing[b"a"].letter.version, book.standing[b"a"].at) == (9, 0)
    assert book.covered == {b"a"}, "compaction would keep the older one: the newer is written again"
    book.take(b"a", letter(version=9).to_json(), 2)
    assert book.standing[b"a"].at == 2 and not book.covered
