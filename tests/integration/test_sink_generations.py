"""Two generations side by side, promotion under readers, and leases: the same behaviour asked of each sink."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from cdc.errors import Fenced, SinkRefused
from sinks.contract import STALE, UNVERSIONED, WRITTEN, Item, Sink
from tests.support.proxy import proxy_to
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, doc, held, items, subject_on

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]


@pytest.fixture(params=["elasticsearch", "redis"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with subject_on(servers(), request.param) as made:
        yield made


@pytest.fixture
def both(subject: Subject) -> tuple[Sink, Sink]:
    """Generation 1 with documents 0 to 4, generation 2 with 3 to 7, other contents under the same keys."""
    first, second = subject.open(), subject.open(generation=2)
    for sink in (first, second):
        sink.setup()
    first.write(VIEW, [Item(str(n), 5, doc(n, "old")) for n in range(5)])
    second.write(VIEW, [Item(str(n), 5, doc(n, "new")) for n in range(3, 8)])
    return first, second


OLD = {str(n): (5, doc(n, "old")) for n in range(5)}
NEW = {str(n): (5, doc(n, "new")) for n in range(3, 8)}


def test_generations_do_not_see_each_other(both: tuple[Sink, Sink]) -> None:
    first, second = both
    assert (held(first), held(second)) == (OLD, NEW)
    assert first.living(VIEW) == second.living(VIEW) == 1
    assert second.write(VIEW, [Item("3", 9, None)]) == [WRITTEN]
    assert first.write(VIEW, [Item("3", 6, doc(3))]) == [WRITTEN]
    assert second.write(VIEW, [Item("3", 6, doc(3))]) == [STALE]
    assert first.get(VIEW, ["3"])["3"].version == 6
    assert second.get(VIEW, ["3"]) == {}


def test_promotion_changes_what_is_living_and_nothing_else(both: tuple[Sink, Sink]) -> None:
    first, second = both
    for _ in range(2):  # the second time there is nothing left to do
        second.promote(VIEW, 1)
        assert first.living(VIEW) == second.living(VIEW) == 2
        assert (held(first), held(second)) == (OLD, NEW)
    assert first.get(VIEW, ["0", "4", "7"]).keys() == {"0", "4"}
    assert second.get(VIEW, ["0", "4", "7"]).keys() == {"4", "7"}


def test_both_are_written_on_after_a_promotion_and_back_again(both: tuple[Sink, Sink], subject: Subject) -> None:
    first, second = both
    for version, (promoted, other) in enumerate([(second, first), (first, second), (second, first)], start=6):
        promoted.promote(VIEW, 1 if promoted is second else 2)
        for sink, text in ((first, "old"), (second, "new")):
            assert (
                sink.write(VIEW, [Item("3", version, doc(version, text)), Item("0", version - 1, None)])
                == [WRITTEN] * 2
            )
            assert sink.write(VIEW, [Item("3", version - 1, doc(0)), Item("0", 4, doc(0))]) == [STALE] * 2
        assert other.get(VIEW, ["3"])["3"].version == promoted.get(VIEW, ["3"])["3"].version == version
    assert held(subject.open(generation=2)) == {**NEW, "3": (8, doc(8, "new"))}
    assert held(subject.open()) == {k: v for k, v in OLD.items() if k != "0"} | {"3": (8, doc(8, "old"))}


def test_a_third_generation_is_built_while_the_second_is_seen(both: tuple[Sink, Sink], subject: Subject) -> None:
    first, second = both
    second.promote(VIEW, 1)
    third = subject.open(generation=3)
    third.setup()
    third.write(VIEW, items(2, 1))
    third.promote(VIEW, 2)
    assert held(first), held(second) == (OLD, NEW)
    assert held(third) == {"0": (1, doc(0)), "1": (1, doc(1))}
    first.promote(VIEW, 3)
    assert (held(first), held(second), first.living(VIEW)) == (OLD, NEW, 1)


def test_promoting_over_another_than_was_meant_is_refused(both: tuple[Sink, Sink], subject: Subject) -> None:
    both[1].promote(VIEW, 1)
    third = subject.open(generation=3)
    third.setup()
    with pytest.raises(SinkRefused, match=r"not .*1"):
        third.promote(VIEW, 1)
    assert third.living(VIEW) == 2


def test_what_a_later_generation_wrote_to_may_be_gone(both: tuple[Sink, Sink], subject: Subject) -> None:
    first, second = both
    assert first.there(VIEW)
    assert second.there(VIEW)
    second.promote(VIEW, 1)
    for sink in both:
        sink.drop(VIEW)
    assert not second.there(VIEW)
    assert not first.there(VIEW)
    third = subject.open(generation=3)
    third.setup()
    third.promote(VIEW, 2)  # nobody sees the second any more: that must not be in its way
    assert third.living(VIEW) == 3


def test_promoting_what_is_not_there_is_refused(both: tuple[Sink, Sink], subject: Subject) -> None:
    with pytest.raises(SinkRefused, match="to promote"):
        subject.open(generation=9).promote(VIEW, 1)
    assert both[0].living(VIEW) == 1


def test_nothing_is_living_where_nothing_is(subject: Subject) -> None:
    assert subject.open().living(VIEW) is None
    assert subject.open().claimed(VIEW) is None


@pytest.mark.parametrize("promoted", [False, True])
def test_drop_removes_one_generation(both: tuple[Sink, Sink], subject: Subject, promoted: bool) -> None:
    first, second = both
    if promoted:
        second.promote(VIEW, 1)
    stays, goes, kept = (second, first, NEW) if promoted else (first, second, OLD)
    goes.drop(VIEW)
    assert held(stays) == kept
    assert stays.living(VIEW) == (2 if promoted else 1)
    goes.setup()
    assert held(goes) == {}
    assert goes.write(VIEW, items(1, 0)) == [WRITTEN]
    assert held(stays) == kept


def test_after_everything_was_dropped_the_first_generation_is_seen_again(both: tuple[Sink, Sink]) -> None:
    first, second = both
    second.promote(VIEW, 1)
    second.drop(VIEW)
    first.drop(VIEW)
    first.setup()
    assert first.write(VIEW, items(3, 1)) == [WRITTEN] * 3
    assert first.living(VIEW) == 1
    assert held(first) == {str(n): (1, doc(n)) for n in range(3)}


def test_bulk_load_and_then_everything_is_there(subject: Subject) -> None:
    sink = subject.open(generation=2)
    sink.setup()
    sink.bulk_load(VIEW, True)
    assert sink.write(VIEW, items(1000, 1)) == [WRITTEN] * 1000
    sink.bulk_load(VIEW, False)
    sink.promote(VIEW, 1)
    assert len(held(sink)) == 1000


def test_a_sample_is_of_this_generation_and_another_for_each_seed(both: tuple[Sink, Sink]) -> None:
    first, second = both
    first.write(VIEW, items(3000, 6))
    samples = [list(first.sample(VIEW, 100, seed)) for seed in (1, 1, 2)]
    assert [len({one.key for one in sample}) for sample in samples] == [100, 100, 100]
    assert {one.version for one in samples[0]} == {6}
    assert {one.key for one in samples[0]} == {one.key for one in samples[1]}
    assert {one.key for one in samples[0]} != {one.key for one in samples[2]}
    assert {one.key for one in second.sample(VIEW, 100, 1)} == set(NEW)


# --- leases -----------------------------------------------------------------------------------------------------------


def test_a_zombie_is_refused_by_the_server(subject: Subject) -> None:
    zombie, heir = subject.open(token=5), subject.open(token=6)
    zombie.setup()
    assert zombie.write(VIEW, [*items(3, 10), Item("9", 10, None)]) == [WRITTEN] * 4
    heir.setup()
    for batch in (items(3, 11), [Item("1", 11, None)], [Item("1", UNVERSIONED, None)], items(3000, 11)):
        with pytest.raises(Fenced, match="taken over") as caught:
            zombie.write(VIEW, batch)
        assert not caught.value.transient
    assert subject.waits == []
    assert held(heir) == {str(n): (10, doc(n)) for n in range(3)}
    with pytest.raises(SinkRefused, match="claimed"):
        zombie.setup()
    assert heir.write(VIEW, items(3, 12)) == [WRITTEN] * 3
    assert heir.claimed(VIEW) == zombie.claimed(VIEW) == 6


def test_who_only_reads_claims_nothing(subject: Subject) -> None:
    writer = subject.open(token=5)
    writer.setup()
    reader = subject.open()
    writer.write(VIEW, items(3, 1))
    assert len(held(reader)) == len(reader.get(VIEW, ["0", "1", "2"])) == 3
    assert reader.claimed(VIEW) == 5
    with pytest.raises(Fenced):
        reader.write(VIEW, items(3, 2))
    assert subject.open(token=5).write(VIEW, items(3, 2)) == [WRITTEN] * 3, "a repair has the writer's token"


def test_a_lease_is_one_generations(both: tuple[Sink, Sink], subject: Subject) -> None:
    subject.open(generation=2, token=8).setup()
    assert both[0].write(VIEW, items(1, 9)) == [WRITTEN]
    with pytest.raises(Fenced):
        both[1].write(VIEW, items(1, 9))
    both[1].promote(VIEW, 1)
    assert both[0].write(VIEW, items(1, 10)) == [WRITTEN]
    with pytest.raises(Fenced):
        both[1].write(VIEW, items(1, 10))


def test_a_dropped_generation_may_be_claimed_from_the_beginning(subject: Subject) -> None:
    old = subject.open(token=8)
    old.setup()
    old.drop(VIEW)
    fresh = subject.open(token=1)
    fresh.setup()
    assert fresh.write(VIEW, items(2, 1)) == [WRITTEN] * 2


def test_a_zombie_that_waits_for_the_server_is_refused_when_it_comes_back(subject: Subject) -> None:
    subject.open(token=5).setup()
    with proxy_to(*subject.address) as proxy:
        zombie = subject.open(token=5, url=subject.via(proxy.port), request_timeout_seconds=1.0)
        zombie.write(VIEW, items(3, 1))
        proxy.mode = "closed"
        raised: list[BaseException] = []

        def write() -> None:
            try:
                zombie.write(VIEW, items(3, 2))
            except Exception as error:
                raised.append(error)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(1.0)
        assert writer.is_alive()
        subject.open(token=6).setup()
        proxy.mode = "open"
        writer.join(30)
        assert [type(error) for error in raised] == [Fenced]
    assert {version for version, _ in held(subject.open()).values()} == {1}


def test_a_takeover_in_the_middle_of_writing_leaves_only_the_heirs_writes_after_it(subject: Subject) -> None:
    zombie, heir = subject.open(token=5), subject.open(token=6)
    zombie.setup()
    raised: list[BaseException] = []
    written = [0]

    def write() -> None:
        try:
            while True:
                zombie.write(VIEW, items(20, written[0] + 1))
                written[0] += 1
        except Exception as error:
            raised.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    while written[0] < 5 and writer.is_alive():
        writer.join(0.01)
    heir.setup()
    writer.join(30)
    assert [type(error) for error in raised] == [Fenced]
    assert written[0] >= 5
    before = held(heir)
    assert set(heir.write(VIEW, items(20, written[0] + 1))) == {WRITTEN}
    assert before.keys() == held(heir).keys()


def test_a_stopped_process_that_wakes_up_after_a_takeover_ends_with_fenced(subject: Subject) -> None:
    """SIGSTOP in the middle of its writes, the lease passes on, SIGCONT."""
    program = (
        "import itertools, json, sys\n"
        "from sinks.contract import Item\n"
        "from sinks.factory import open_sink\n"
        "sink = open_sink(json.loads(sys.argv[1]))\n"
        "sink.setup()\n"
        "for version in itertools.count(1):\n"
        f"    sink.write({VIEW!r}, [Item(str(n), version, b'{{}}') for n in range(50)])\n"
        "    print(version, flush=True)\n"
    )
    argv = [sys.executable, "-c", program, json.dumps(subject.config(token=5))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as zombie:
        assert zombie.stdout and zombie.stderr
        for _ in range(3):
            zombie.stdout.readline()
        zombie.send_signal(signal.SIGSTOP)
        heir = subject.open(token=6)
        heir.setup()
        assert set(heir.write(VIEW, [Item(str(n), 10**6, doc(n)) for n in range(50)])) == {WRITTEN}
        zombie.send_signal(signal.SIGCONT)
        said = zombie.stderr.read()
    assert zombie.returncode == 1
    assert "cdc.errors.Fenced" in said
    assert held(heir) == {str(n): (10**6, doc(n)) for n in range(50)}


def test_of_many_that_claim_at_once_the_highest_stays(subject: Subject) -> None:
    subject.open(token=1).setup()
    sinks = {token: subject.open(token=token) for token in range(2, 10)}
    refused: dict[int, Exception] = {}
    barrier = threading.Barrier(len(sinks))

    def claim(token: int) -> None:
        barrier.wait()
        try:
            sinks[token].setup()
        except Exception as error:
            refused[token] = error

    threads = [threading.Thread(target=claim, args=(token,), daemon=True) for token in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 9 not in refused
    assert {type(error) for error in refused.values()} <= {SinkRefused}
    assert sinks[9].write(VIEW, items(5, 1)) == [WRITTEN] * 5
    for token in range(2, 9):
        with pytest.raises(Fenced):
            sinks[token].write(VIEW, items(5, 2))
