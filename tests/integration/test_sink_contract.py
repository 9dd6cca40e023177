"""The sinks' contract, the same behaviour asked of each of them, on real servers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from cdc.errors import ConfigError, SinkUnavailable
from sinks.contract import MAX_VERSION, STALE, UNVERSIONED, WRITTEN, Item, Outcome, Sink
from sinks.redis import RedisSink
from tests.support.proxy import proxy_to
from tests.support.sampling import in_turn
from tests.support.servers import servers
from tests.support.sinks import SEARCH, VIEW, State, Subject, doc, held, items, one_by_one, subject_on
from tests.support.source import eventually

pytestmark = pytest.mark.stack


@pytest.fixture(params=[*in_turn(*SEARCH), "redis"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with subject_on(servers(), request.param) as made:
        yield made


@pytest.fixture
def sink(subject: Subject) -> Sink:
    made = subject.open()
    made.setup()
    return made


def test_is_a_sink(sink: Sink) -> None:
    assert isinstance(sink, Sink)


def test_the_claim_that_all_of_it_shows_is_the_newest_one_or_is_not_told(subject: Subject) -> None:
    sink = subject.open(token=5)
    assert sink.oldest_claim(VIEW) is None
    for token in (5, 9):
        subject.open(token=token).setup()
        assert sink.claimed(VIEW) == token and sink.oldest_claim(VIEW) in (token, None)
    assert (sink.oldest_claim(VIEW) is None) == isinstance(sink, RedisSink)


def test_generations_that_were_made_are_told_by_one_look(sink: Sink, subject: Subject) -> None:
    assert sink.numbered([VIEW]) == {1: {VIEW}}
    sink.drop(VIEW)
    assert sink.numbered([VIEW]) == {}


def test_setup_may_be_repeated_and_keeps_what_is_there(sink: Sink, subject: Subject) -> None:
    sink.write(VIEW, [Item("1", 5, doc(1))])
    subject.open().setup()
    assert held(sink) == {"1": (5, doc(1))}


def test_write_then_get_and_scan(sink: Sink) -> None:
    assert sink.write(VIEW, items(3, 7)) == [WRITTEN] * 3
    assert sink.get(VIEW, ["0", "2", "none"]) == {"0": ("0", 7, doc(0)), "2": ("2", 7, doc(2))}
    assert held(sink) == {str(n): (7, doc(n)) for n in range(3)}


def test_it_is_filled_by_the_first_document_and_not_by_a_delete(sink: Sink) -> None:
    assert sink.filled([VIEW]) is None and sink.filled([]) is None
    sink.write(VIEW, [Item("1", 5, None)])
    assert sink.filled([VIEW]) is None
    sink.write(VIEW, [Item("2", 5, doc(1))])
    assert sink.filled([VIEW]) == VIEW


def test_nothing_to_write(sink: Sink) -> None:
    assert sink.write(VIEW, []) == []
    assert sink.get(VIEW, []) == {}
    assert held(sink) == {}


def test_answers_come_in_the_order_of_the_items(sink: Sink) -> None:
    sink.write(VIEW, [Item("b", 9, doc(9))])
    long = "k" * 9000
    answers = sink.write(VIEW, [Item("a", 5, doc(1)), Item("b", 5, doc(2)), Item("c", 5, None), Item(long, 5, doc(3))])
    assert answers[:3] == [WRITTEN, STALE, WRITTEN]
    assert answers[3].outcome is Outcome.REJECTED
    assert answers[3].reason


def test_a_key_that_no_document_can_have_is_looked_for_among_others(sink: Sink) -> None:
    sink.write(VIEW, [Item("1", 5, doc(1))])
    for key in ("", "k" * 600, "k" * 9000):
        answers = sink.write(VIEW, [Item(key, 5, doc(2))])
        there = {key} if answers == [WRITTEN] else set()
        assert sink.get(VIEW, ["1", key]).keys() == sink.versions(VIEW, ["1", key]).keys() == {"1", *there}


def test_fault_17_an_older_version_is_stale_and_changes_nothing(sink: Sink) -> None:
    sink.write(VIEW, [Item("1", 10, doc(10))])
    assert sink.write(VIEW, [Item("1", 9, doc(9))]) == [STALE]
    assert sink.write(VIEW, [Item("1", 9, None)]) == [STALE]
    assert held(sink) == {"1": (10, doc(10))}


def test_an_equal_version_may_overwrite(sink: Sink) -> None:
    sink.write(VIEW, [Item("1", 10, doc(1))])
    assert sink.write(VIEW, [Item("1", 10, doc(2))]) == [WRITTEN]
    assert sink.write(VIEW, [Item("1", 10, None)]) == [WRITTEN]
    assert sink.write(VIEW, [Item("1", 10, doc(3))]) == [WRITTEN]
    assert held(sink) == {"1": (10, doc(3))}


def test_a_deleted_document_stays_deleted_until_something_newer(sink: Sink) -> None:
    sink.write(VIEW, [Item("1", 10, doc(10)), Item("2", 10, doc(10))])
    assert sink.write(VIEW, [Item("1", 20, None)]) == [WRITTEN]
    assert sink.write(VIEW, [Item("1", 15, doc(15))]) == [STALE]
    assert set(held(sink)) == {"2"}
    assert sink.write(VIEW, [Item("1", 21, doc(21))]) == [WRITTEN]
    assert held(sink)["1"] == (21, doc(21))


def test_versions_are_told_also_of_what_was_deleted(sink: Sink) -> None:
    sink.write(VIEW, [Item("a", 5, doc(1)), Item("b", 5, doc(2))])
    sink.write(VIEW, [Item("b", 7, None), Item("c", 9, None)])
    assert sink.versions(VIEW, ["a", "b", "c", "none", "", "k" * 9000]) == {"a": 5, "b": 7, "c": 9}
    assert sink.versions(VIEW, []) == {}


def test_a_delete_of_what_was_never_there_still_fences(sink: Sink) -> None:
    assert sink.write(VIEW, [Item("1", 20, None)]) == [WRITTEN]
    assert sink.write(VIEW, [Item("1", 15, doc(15))]) == [STALE]
    assert held(sink) == {}


def test_deletes_and_writes_in_one_batch_with_versions_all_over(sink: Sink) -> None:
    sink.write(VIEW, [Item(str(n), 100 + n, None if n % 3 == 0 else doc(n)) for n in range(300)])
    again = sink.write(VIEW, [Item(str(n), 50 + n, doc(-n)) for n in range(300)])
    assert set(again) == {STALE}
    assert held(sink) == {str(n): (100 + n, doc(n)) for n in range(300) if n % 3}


def test_a_tombstone_without_a_version_deletes_and_keeps_the_version(sink: Sink) -> None:
    assert sink.write(VIEW, [Item("1", 300, doc(1)), Item("2", 300, doc(2))]) == [WRITTEN, WRITTEN]
    assert sink.write(VIEW, [Item("1", UNVERSIONED, None), Item("none", UNVERSIONED, None)]) == [WRITTEN, WRITTEN]
    assert set(held(sink)) == {"2"}
    assert sink.write(VIEW, [Item("1", 299, doc(0))]) == [STALE]
    assert sink.write(VIEW, [Item("1", 300, doc(1))]) == [WRITTEN]
    assert held(sink)["1"] == (300, doc(1))


def test_a_fence_is_compared_with_each_version_of_its_key(sink: Sink) -> None:
    """The replay of a batch that was cut: its delete has left a fence, and all of it comes once more."""
    sink.write(VIEW, [Item("1", 20, None)])
    answers = sink.write(VIEW, [Item("1", 10, doc(10)), Item("1", 20, None), Item("1", 30, doc(30))])
    assert answers == [STALE, STALE, WRITTEN]
    assert held(sink) == {"1": (30, doc(30))}


@pytest.mark.parametrize("seed", range(4))
def test_several_items_of_a_key_are_as_if_written_one_after_the_other(sink: Sink, seed: int) -> None:
    rng = random.Random(seed)
    state: State = {}

    def some(count: int) -> list[Item]:
        made = []
        for n in range(count):
            version = rng.choice([UNVERSIONED, 1, 2, 3, 4])
            document = None if version == UNVERSIONED or rng.random() < 0.3 else doc(n)
            made.append(Item(str(rng.randrange(30)), version, document))
        return made

    for _ in range(6):
        batch = some(rng.choice([20, 120]))
        answers = sink.write(VIEW, batch)
        assert {answer.outcome for answer in answers} <= {Outcome.WRITTEN, Outcome.STALE}
        state = one_by_one(state, batch)
        assert held(sink) == {key: (version, found) for key, (version, found) in state.items() if found is not None}
    remembered = [Item(key, version - 1, doc(-1)) for key, (version, _) in state.items() if version > 1]
    assert set(sink.write(VIEW, remembered)) == {STALE}


def test_equal_versions_far_apart_in_a_call_end_with_the_later(sink: Sink) -> None:
    """As in a fill, where every version is 1 and a call is cut into requests that are under way at once."""
    hot = 40

    def batch(last: bytes | None) -> list[Item]:
        made = items(6000, 1)
        for n in range(hot):
            for turn, start in enumerate((0, 2000, 4000)):
                made[start + n * 7] = Item(f"hot{n}", 1, doc(turn) if turn < 2 else last)
        return made

    for _ in range(3):
        sink.write(VIEW, batch(doc(2)))
        assert {found.document for found in sink.get(VIEW, [f"hot{n}" for n in range(hot)]).values()} == {doc(2)}
        sink.write(VIEW, batch(None))
        assert sink.get(VIEW, [f"hot{n}" for n in range(hot)]) == {}


def test_a_rejected_item_overrules_nothing(sink: Sink) -> None:
    answers = sink.write(VIEW, [Item("1", 5, doc(5)), Item("1", MAX_VERSION + 1, doc(6)), Item("1", 4, doc(4))])
    assert [answer.outcome for answer in answers] == [Outcome.WRITTEN, Outcome.REJECTED, Outcome.STALE]
    assert held(sink) == {"1": (5, doc(5))}


def test_versions_use_all_63_bits(sink: Sink) -> None:
    """Both Lua and JSON parsers like to make doubles of numbers, which can't tell these apart."""
    high = MAX_VERSION - 1
    assert sink.write(VIEW, [Item("1", high, doc(1))]) == [WRITTEN]
    assert sink.write(VIEW, [Item("1", high - 1, doc(2))]) == [STALE]
    assert sink.write(VIEW, [Item("1", MAX_VERSION, doc(3))]) == [WRITTEN]
    assert held(sink) == {"1": (MAX_VERSION, doc(3))}
    assert sink.write(VIEW, [Item("2", 9, doc(1)), Item("3", 10, doc(1))]) == [WRITTEN, WRITTEN]
    assert sink.write(VIEW, [Item("2", 10, doc(2)), Item("3", 9, doc(2))]) == [WRITTEN, STALE]


@pytest.mark.parametrize("version", [-2, MAX_VERSION + 1])
def test_a_version_out_of_bounds_is_rejected(sink: Sink, version: int) -> None:
    first, second = sink.write(VIEW, [Item("1", version, doc(1)), Item("2", 1, doc(2))])
    assert first.outcome is Outcome.REJECTED
    assert "version" in (first.reason or "")
    assert second == WRITTEN


def test_an_upsert_must_have_a_version(sink: Sink) -> None:
    assert sink.write(VIEW, [Item("1", UNVERSIONED, doc(1))])[0].outcome is Outcome.REJECTED


def test_documents_come_back_to_the_byte(sink: Sink) -> None:
    odd = [
        b'{"n":1,"price":1.10,"big":123456789012345678901234567890.50,"e":1E400}',
        '{"n":2,"t":"ü€😀\\u0001 \\"_source\\": {"}'.encode(),
        b'{"n":3,"raw":{"b": 1 , "a":[1,2.0]}}',
        b"{}",
    ]
    sink.write(VIEW, [Item(str(place), 1, one) for place, one in enumerate(odd)])
    assert held(sink) == {str(place): (1, one) for place, one in enumerate(odd)}
    assert {one.document for one in sink.get(VIEW, ["0", "1", "2", "3"]).values()} == set(odd)


def test_odd_keys_stay_apart(sink: Sink) -> None:
    keys = ["a", "a|b", "a\\|b", "{a}", "a}b", "}{", "{", "%7D", "}", "%", "a:b", "*", "a b", '"', "ü😀", "/", "_doc"]
    assert set(sink.write(VIEW, [Item(key, 5, doc(n)) for n, key in enumerate(keys)])) == {WRITTEN}
    assert held(sink) == {key: (5, doc(n)) for n, key in enumerate(keys)}
    assert {key for key, one in sink.get(VIEW, keys).items() if one.document} == set(keys)
    assert set(sink.write(VIEW, [Item(key, 4, doc(0)) for key in keys])) == {STALE}
    assert set(sink.write(VIEW, [Item(key, 6, None) for key in keys])) == {WRITTEN}
    assert held(sink) == {}


def test_an_empty_key_is_kept_or_rejected_alone(sink: Sink, subject: Subject) -> None:
    """The id of a row whose only key column is an empty text; Elasticsearch has no document without an id."""
    first, second = sink.write(VIEW, [Item("", 5, doc(1)), Item("2", 5, doc(2))])
    assert second == WRITTEN
    if subject.is_search:
        assert first.outcome is Outcome.REJECTED
        return
    assert first == WRITTEN
    assert held(sink) == {"": (5, doc(1)), "2": (5, doc(2))}
    assert sink.get(VIEW, [""])[""].document == doc(1)
    assert sink.write(VIEW, [Item("", 4, doc(0))]) == [STALE]
    assert sink.write(VIEW, [Item("", 6, None)]) == [WRITTEN]
    assert set(held(sink)) == {"2"}


def test_too_long_a_key_is_rejected_alone(sink: Sink) -> None:
    first, second = sink.write(VIEW, [Item("k" * 9000, 1, doc(1)), Item("2", 1, doc(2))])
    assert first.outcome is Outcome.REJECTED
    assert "key" in (first.reason or "")
    assert second == WRITTEN


def test_too_large_a_document_is_rejected_alone(subject: Subject) -> None:
    sink = subject.open(max_document_bytes=10_000)
    sink.setup()
    first, second = sink.write(VIEW, [Item("1", 1, doc(1, "x" * 10_000)), Item("2", 1, doc(2))])
    assert first.outcome is Outcome.REJECTED
    assert "at most 10000" in (first.reason or "")
    assert second == WRITTEN


def test_many_large_documents_are_cut_into_bounded_requests(sink: Sink) -> None:
    batch = [Item(str(n), 1, doc(n, "y" * 1_000_000)) for n in range(20)]
    assert sink.write(VIEW, batch) == [WRITTEN] * 20
    assert {key: len(found[1]) for key, found in held(sink).items()} == {b.key: len(b.document or b"") for b in batch}


def test_ten_thousand_items(sink: Sink) -> None:
    assert sink.write(VIEW, items(10_000, 3)) == [WRITTEN] * 10_000
    found = held(sink)
    assert len(found) == 10_000
    assert found["9999"] == (3, doc(9999))


def test_its_size_grows_with_what_it_holds(sink: Sink) -> None:
    before = sink.size(VIEW)
    sink.write(VIEW, [Item(str(n), 1, b'{"text":"%s"}' % (b"%040x" % (n * 7919) * 20)) for n in range(1000)])
    assert eventually(lambda: before + 20_000 < sink.size(VIEW) < 20_000_000), (before, sink.size(VIEW))


def test_an_unknown_view_is_an_error(sink: Sink) -> None:
    with pytest.raises(ConfigError, match="nope"):
        sink.write("nope", items(1, 1))


def test_emptied_it_takes_any_version_again(sink: Sink) -> None:
    """A fill begins anew with versions from 1; documents, and deletes that are remembered, would refuse them."""
    sink.write(VIEW, [Item("1", 300, doc(1)), Item("2", 300, None)])
    sink.empty(VIEW)
    sink.setup()
    assert held(sink) == {} and sink.there(VIEW)
    assert sink.write(VIEW, [Item("1", 1, doc(1)), Item("2", 1, doc(2))]) == [WRITTEN, WRITTEN]
    assert held(sink) == {"1": (1, doc(1)), "2": (1, doc(2))}


def test_drop_forgets_documents_and_deletes(sink: Sink) -> None:
    sink.write(VIEW, [Item("1", 10, doc(1)), Item("2", 10, None)])
    sink.drop(VIEW)
    sink.setup()
    assert held(sink) == {}
    assert sink.write(VIEW, [Item("1", 5, doc(5)), Item("2", 5, doc(5))]) == [WRITTEN, WRITTEN]


def test_setup_does_not_wait_for_a_dead_server(subject: Subject) -> None:
    with proxy_to(*subject.address) as proxy:
        proxy.mode = "closed"
        with pytest.raises(SinkUnavailable):
            subject.open(url=subject.via(proxy.port), give_up_seconds=None).setup()


def test_gives_up_after_the_bound_and_says_so(subject: Subject) -> None:
    subject.open().setup()
    with proxy_to(*subject.address) as proxy:
        proxy.mode = "closed"
        sink = subject.open(url=subject.via(proxy.port), give_up_seconds=0.5)
        with pytest.raises(SinkUnavailable, match="tested") as caught:
            sink.write(VIEW, items(3, 1))
        assert caught.value.transient
        assert "nothing was skipped" in str(caught.value)
    assert subject.waits


@pytest.mark.parametrize("mode", ["closed", "deaf", "cut-answers"])
def test_fault_40_a_broken_wire_holds_the_batch_and_then_all_of_it_lands(subject: Subject, mode: str) -> None:
    subject.open().setup()
    with proxy_to(*subject.address) as proxy:
        sink = subject.open(url=subject.via(proxy.port), request_timeout_seconds=1.0)
        assert sink.write(VIEW, items(10, 1)) == [WRITTEN] * 10
        proxy.mode = mode
        answers: list[object] = []
        batch = [*items(500, 2), Item("gone", 2, None)]
        writer = threading.Thread(target=lambda: answers.extend(sink.write(VIEW, batch)), daemon=True)
        writer.start()
        writer.join(2.5)
        assert writer.is_alive(), "the batch must be held while the server can't be reached"
        proxy.mode = "open"
        writer.join(60)
        assert answers == [WRITTEN] * 501
    assert held(subject.open()) == {str(n): (2, doc(n)) for n in range(500)}
    assert subject.waits


@pytest.mark.alone
def test_a_slow_wire_is_only_slow(subject: Subject) -> None:
    subject.open().setup()
    with proxy_to(*subject.address) as proxy:
        proxy.mode = "slow"
        sink = subject.open(url=subject.via(proxy.port), request_timeout_seconds=60.0)
        assert sink.write(VIEW, items(2000, 1)) == [WRITTEN] * 2000
    assert len(held(subject.open())) == 2000


def test_close_wakes_a_waiting_write(subject: Subject) -> None:
    subject.open().setup()
    with proxy_to(*subject.address) as proxy:
        proxy.mode = "closed"
        sink = subject.open(url=subject.via(proxy.port), give_up_seconds=None)
        raised: list[BaseException] = []

        def write() -> None:
            try:
                sink.write(VIEW, items(5000, 1))
            except BaseException as error:
                raised.append(error)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(1.0)
        assert writer.is_alive()
        sink.close()
        writer.join(15)
        assert not writer.is_alive()
        assert isinstance(raised[0], SinkUnavailable)


def test_a_scan_that_breaks_is_an_error_not_a_short_answer(subject: Subject) -> None:
    sink = subject.open()
    sink.setup()
    sink.write(VIEW, items(8000, 1))
    with proxy_to(*subject.address) as proxy:
        through = subject.open(url=subject.via(proxy.port))
        rows = through.scan(VIEW)
        next(rows)
        proxy.mode = "closed"
        with pytest.raises(SinkUnavailable):
            list(rows)


def test_two_writers_at_once_leave_the_newest(subject: Subject) -> None:
    subject.open().setup()

    def write(first: int) -> None:
        sink = subject.open()
        for version in range(first, 40, 2):
            sink.write(
                VIEW, [Item(str(n), version, None if (version + n) % 7 == 0 else doc(version)) for n in range(50)]
            )

    writers = [threading.Thread(target=write, args=(first,), daemon=True) for first in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert held(subject.open()) == {str(n): (39, doc(39)) for n in range(50) if (39 + n) % 7}


def test_secrets_stay_out_of_messages_and_reprs(subject: Subject) -> None:
    login = "redis://user:hunter2@127.0.0.1:1/0" if subject.kind == "redis" else "http://user:hunter2@127.0.0.1:1"
    sink = subject.open(url=login, give_up_seconds=0.2, password="hunter3")
    with pytest.raises(SinkUnavailable) as caught:
        sink.write(VIEW, items(1, 1))
    told = str(caught.value) + repr(caught.value) + repr(vars(sink)) + "".join(subject.waits)
    assert "hunter" not in told
