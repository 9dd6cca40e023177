"""Dead letters of a real Elasticsearch: they stand, heal, are written again, and hold nobody back."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from cdc.pipeline import load
from cdc.token import History, WriteToken
from operations.letters.waiting import RejectedWrites
from operations.letters.writes import verdict
from operations.state.letters import letter_counts
from tests.support.lettered import LONG, Lettered
from tests.support.servers import servers

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


@pytest.fixture(scope="module")
def lettered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lettered]:
    stack = servers()
    stack.up()
    made = Lettered(stack, tmp_path_factory.mktemp("lettered"))
    with made.running():
        yield made


def test_a_mapping_conflict_stands_until_a_later_write_is_taken(lettered: Lettered) -> None:
    lettered.execute("UPDATE things SET code = CASE id WHEN 1 THEN 'secret-one' ELSE '22' END WHERE id IN (1, 2)")
    both = {("search", "thing", "1"), ("search", "card", "1")}
    lettered.eventually(lettered.about, both)
    lettered.eventually(lambda: (lettered.indexed("thing", "2") or {})["code"], "22")
    assert (lettered.indexed("thing", "1") or {})["code"] == "1"
    pipeline = load(lettered.file, lettered.environment())
    lettered.eventually(lambda: getattr(letter_counts(pipeline)["search"], "standing", None), 2)

    listed = lettered.run("letters", "list", "--each")
    assert "failed to parse field [code] of type [integer]" in listed and "secret-one" not in listed
    [shown] = lettered.letters("show", "1", "--view", lettered.view("thing"))["letters"]
    assert "secret-one" not in json.dumps(shown) and shown["record"]["there"]
    [shown] = lettered.letters("show", "1", "--view", lettered.view("thing"), "--values")["letters"]
    assert "secret-one" in shown["reason"]
    assert shown["document"]["code"] == shown["record"]["value"]["after"]["code"] == "secret-one"
    transaction = shown["record"]["value"]["source"]["txId"]
    # What a waiter asks: was this very transaction refused?
    asked = RejectedWrites(pipeline)
    told = asked.told("search", [1])
    mine = {(one.view, of) for one, of in told if one.key == "1"}
    assert mine == {(lettered.view("card"), None), (lettered.view("thing"), transaction)}
    assert "1" not in {one.key for one, _ in asked.told("cache", [1])}, "Redis takes everything"
    for number, state in ((transaction + (5 << 32), "rejected"), (transaction + 1, "unknown")):
        answer = verdict(WriteToken("transaction", History(1, 1, "", "", 0), number), told, time.time())
        assert answer is not None and answer[0] == state, answer

    lettered.execute("UPDATE things SET code = '11' WHERE id = 1")
    lettered.eventually(lettered.on_record, set())  # `run` has cleared them, at the sink's word
    assert lettered.about() == set()
    lettered.eventually(lambda: getattr(letter_counts(pipeline)["search"], "standing", None), 0)


def test_a_delete_heals_too_and_verbs_know_it_without_run(lettered: Lettered) -> None:
    lettered.execute("UPDATE things SET code = 'no' WHERE id = 3")
    lettered.eventually(lettered.about, {("search", "thing", "3"), ("search", "card", "3")})
    lettered.execute("DELETE FROM things WHERE id = 3")
    lettered.eventually(lettered.about, set())
    lettered.eventually(lettered.on_record, set())


def test_a_childs_letter_stands_beside_its_roots(lettered: Lettered) -> None:
    """Row 4 of the one table and row 4 of the other, in one view."""
    lettered.execute("UPDATE things SET code = 'no' WHERE id = 4")
    lettered.execute("UPDATE parts SET label = 'no number' WHERE id = 4")
    root = {("search", "thing", "4"), ("search", "card", "4")}
    lettered.eventually(lettered.about, {*root, ("search", "card", "public.parts 4")})
    assert lettered.about("--table", "parts") == {("search", "card", "public.parts 4")}
    lettered.execute("UPDATE parts SET label = '8' WHERE id = 4")
    lettered.eventually(lettered.about, root)
    lettered.execute("UPDATE things SET code = '4' WHERE id = 4")
    lettered.eventually(lettered.on_record, set())


def test_a_record_that_can_not_be_read_goes_by_a_later_one(lettered: Lettered) -> None:
    lettered.produce("things", b'{"id":5}', b"{nothing")
    unread = {
        ("search", "", 'public.things {"id":5}'),
        ("search", "card", "public.things 5"),
        ("cache", "", 'public.things {"id":5}'),
    }
    lettered.eventually(lettered.about, unread)
    report = lettered.letters("replay", "--sink", "cache", ok=(2,))
    [left] = report["why"]
    assert (report["taken"], report["left"]) == (0, 1) and "headwater resnapshot FILE public.things" in left["why"]
    lettered.execute("UPDATE things SET code = '55' WHERE id = 5")
    # The joined view's row store knows the later record; of the others only the log does.
    lettered.eventually(lettered.about, unread - {("search", "card", "public.things 5")})
    lettered.wait(lambda now: all(sink["lag_events"] == 0 for sink in now["sinks"]))
    report = lettered.letters("replay")
    assert (report["taken"], report["left"]) == (2, 0)
    assert lettered.on_record() == set()


def test_fault_15_what_was_mended_is_written_as_it_is_now_and_poison_holds_nobody_back(lettered: Lettered) -> None:
    long = ", ".join(f"({number}, '{number}', repeat('x', {LONG}))" for number in (101, 102))
    lettered.execute(f"INSERT INTO things VALUES {long}")
    lettered.execute("INSERT INTO things VALUES (104, 'poison', 'n')")
    lettered.execute(f"UPDATE things SET name = repeat('y', {LONG}), code = '7' WHERE id = 101")
    poison = {("search", "thing", "104"), ("search", "card", "104")}
    lettered.eventually(lettered.about, {*poison, *(("search", "thing", key) for key in ("101", "102"))})
    lettered.mend_mapping("thing", name={"type": "keyword", "ignore_above": 100})
    report = lettered.letters("replay", "--key", "101", "--key", "102", "--key", "104", ok=(2,))
    assert (report["asked"], report["taken"], report["left"]) == (4, 2, 2)
    assert {one["key"] for one in report["why"]} == {"104"}
    assert all("refused it: 400 document_parsing_exception" in one["why"] for one in report["why"]), report["why"]
    assert "poison" not in json.dumps(report)
    newest = lettered.indexed("thing", "101") or {}
    assert (newest["code"], newest["name"][0]) == ("7", "y") and lettered.indexed("thing", "102") is not None
    assert lettered.about() == poison

    dry = lettered.letters("drop", "--view", lettered.view("card"), "--dry-run")
    assert (dry["standing"], dry["dropped"]) == (1, 0) and lettered.about() == poison
    with patch("sys.stdin", io.StringIO()):
        assert "asks before it removes anything" in lettered.run_error("letters", "drop")
    assert lettered.letters("drop", "--view", lettered.view("card"), "--yes")["dropped"] == 1
    assert lettered.about() == {("search", "thing", "104")}
    lettered.execute("UPDATE things SET code = '104' WHERE id = 104")
    lettered.eventually(lettered.on_record, set())


@pytest.mark.slow
def test_a_repair_clears_the_letters_of_what_it_wrote(lettered: Lettered) -> None:
    """At the very version that was refused: nothing that the sink holds afterwards tells it from the letter's."""
    lettered.execute(f"UPDATE things SET note = repeat('x', {LONG}) WHERE id = 7")
    lettered.eventually(lettered.about, {("search", "thing", "7")})
    lettered.mend_mapping("thing", note={"type": "keyword", "ignore_above": 100})
    lettered.readable(allowed=True)
    try:
        lettered.run("verify", "--sink", "search", "--repair", "--wait", "30")
    finally:
        lettered.readable(allowed=False)
    assert (lettered.indexed("thing", "7") or {})["note"][0] == "x"
    assert lettered.on_record() == set()


def test_bad_words_are_named(lettered: Lettered) -> None:
    for options, said in (
        (("list", "--sink", "nosuch"), "no sink nosuch"),
        (("list", "--view", "nosuch"), "no view nosuch"),
        (("list", "--cause", "["), "no regular expression"),
        (("list", "--since", "soon"), "'soon' is no moment"),
        (("list", "--generation", "9", "--sink", "search"), "has no generation 9"),
        (("list", "--generation", "1"), "say which: --sink NAME"),
    ):
        assert said in lettered.run_error("letters", *options), options


def test_a_paused_sink_is_not_written_to(lettered: Lettered) -> None:
    lettered.execute("UPDATE things SET code = 'no' WHERE id = 6")
    lettered.eventually(lettered.about, {("search", "thing", "6"), ("search", "card", "6")})
    lettered.run("pause", "search")
    try:
        assert "paused" in lettered.run_error("letters", "replay")
    finally:
        lettered.run("resume", "search")
    lettered.execute("UPDATE things SET code = '6' WHERE id = 6")
    lettered.eventually(lettered.on_record, set())
