"""What batches take, and on what: as Spark reports it, as `status.json` keeps it, as `/metrics` tells it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import SinkUnavailable
from sinks.contract import Answer, Item, Outcome
from sinks.retry import Patience, repeats
from spark import write
from spark.disk.batches import PHASES, Batch, phases_of
from spark.disk.status import BATCH_SECONDS
from spark.meter import Meter
from spark.reading.entries import Decoded, Entry
from spark.reading.spec import FlowSpec

SPARK = {"latestOffset": 3, "getBatch": 1, "queryPlanning": 9, "walCommit": 4, "addBatch": 70, "commitOffsets": 5}


def report(batch: int, durations: dict[str, int], **counts: int) -> Any:
    metrics = {"applied": SimpleNamespace(asDict=lambda: counts)}
    return SimpleNamespace(
        batchId=batch, durationMs=durations, observedMetrics=metrics, timestamp="2026-11-23T06:00:00.500Z"
    )


def test_phases_add_up_to_the_whole() -> None:
    found = phases_of({**SPARK, "triggerExecution": 100})
    assert found == {"offsets": 3, "plan": 10, "apply": 70, "commit": 9, "other": 8}
    assert set(found) == set(PHASES) and sum(found.values()) == 100
    assert phases_of({"addBatch": 5, "triggerExecution": 4})["other"] == 0, "Spark's clocks may differ by one"


def test_a_meter_adds_up_and_tells_each_batch_once() -> None:
    meter, told = Meter(), list[Batch]()
    query = SimpleNamespace(recentProgress=[report(0, {**SPARK, "triggerExecution": 100}, records=5, retries=2)])
    meter.read(query, told.append)
    query.recentProgress.append(report(1, {"addBatch": 2_000, "triggerExecution": 2_600}, records=1, sink_us=1_500))
    meter.read(query, told.append)
    assert [batch.number for batch in told] == [0, 1]
    assert (meter.totals["records"], meter.totals["retries"], meter.totals["sink_us"]) == (6, 2, 1_500)
    assert (meter.phases["apply"], meter.phases["other"]) == (2_070, 608)
    assert told[0].began == pytest.approx(1_795_413_600.5) and told[0].ms == 100
    spread = dict(zip([*BATCH_SECONDS, None], meter.buckets, strict=True))
    assert {bound for bound, count in spread.items() if count} == {0.1, 5.0}, "a bound belongs to its own class"


class Slow:
    """A sink that lets its writer wait twice."""

    def write(self, _view: str, items: list[Item]) -> list[Answer]:
        patience = Patience("sink", stop=self.stop())
        for _ in range(2):
            patience.hold("it is busy")
        return [Answer(Outcome.WRITTEN) for _ in items]

    @staticmethod
    def stop() -> Any:
        return SimpleNamespace(is_set=lambda: False, wait=lambda _seconds: threading.Event().wait(0.02))


def test_a_task_counts_its_repeats_and_its_time_in_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_sink", lambda _packed: Slow())
    monkeypatch.setattr(write.deadletters, "send", lambda _where, _letters: None)
    monkeypatch.setattr(write, "end_task", lambda _spec, _packed: None)
    spec = FlowSpec("s", {}, {}, {}, {}, {})
    for _ in range(2):  # a worker that is used again counts anew
        entry = Entry("v", "1", 5, b"{}", "t", 0, 0, 0)
        [summary] = write.apply_decoded(spec.pack(), iter([Decoded([entry], [], 1)]))
        rows = {row["view"]: row for row in summary.to_pylist()}
        assert rows[""]["retries"] == 2 and rows["v"]["written"] == 1
        assert 40_000 <= rows["v"]["sink_us"] < 2_000_000


@pytest.mark.parametrize("fails", [False, True], ids=["its last write takes long", "its last write fails"])
def test_a_row_is_waited_for_until_its_documents_are_written_and_its_letters_sent(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """The row store's mark of what is pending makes a repeat write it: once it is off, nobody does."""
    order = list[str]()

    class Sink:
        def write(self, _view: str, items: list[Item]) -> list[Answer]:
            threading.Event().wait(0.05)
            if fails:
                raise SinkUnavailable("it is away")
            order.append("written")
            return [Answer(Outcome.REJECTED, "no") for _ in items]

    monkeypatch.setattr(write, "_sink", lambda _packed: Sink())
    monkeypatch.setattr(write.deadletters, "send", lambda _where, letters: order.extend("letter" for _ in letters))
    monkeypatch.setattr(write, "end_task", lambda _spec, _packed: order.append("done"))
    entry = Entry("v", "1", 5, b"{}", "t", 0, 0, 0)
    task = write.apply_decoded(FlowSpec("s", {}, {}, {}, {}, {}).pack(), iter([Decoded([entry], [], 1)]))
    if fails:
        with pytest.raises(SinkUnavailable):
            list(task)
        assert order == []
    else:
        assert len(list(task)) == 1
        assert order == ["written", "letter", "done"]


def test_giving_up_is_no_repeat() -> None:
    before = repeats()
    with pytest.raises(SinkUnavailable):
        Patience("sink", give_up_seconds=0.0).hold("it is away")
    assert repeats() == before
