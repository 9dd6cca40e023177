"""Queries on a real Spark and Kafka: a batch that is replayed, a disk that is full, a terminal that stays clean."""

from __future__ import annotations

import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.disk.checkpoint import committed_offsets
from spark.disk.status import FlowStatus
from spark.drain import DRAIN
from spark.flow import Flow, Reading, begin, changelog
from spark.pulse import GROUP
from spark.reading.source import SOURCE, turn_ahead, turn_done
from spark.reading.spec import FlowSpec
from spark.runner import Runner
from tests.support.own_session import SECONDS, brokers, own_session, wait

pytestmark = [
    pytest.mark.stack,
    # PySpark leaves sockets to the garbage collector, also those of an earlier test's machine.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

RESTING = "headwater.spark.RestingKafka"


@pytest.fixture(scope="module")
def kafka() -> str:
    return brokers()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with own_session(tmp_path_factory.mktemp("spark")) as session:
        assert session.conf.get(SOURCE) == RESTING
        yield session
        session.stop()


@pytest.fixture(params=[RESTING, "kafka"], ids=["resting", "plain"])
def source(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """The class that reads Kafka: ours, and Spark's own, as where our jar is missing."""
    spark.conf.set(SOURCE, request.param)
    yield request.param
    spark.conf.set(SOURCE, RESTING)


def flow_on(kafka: str, folder: Path, records: int, partitions: int) -> tuple[Flow, Callable[[int], None]]:
    """A flow that reads a topic of its own, and what sends records there."""
    topic = f"t{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka})

    def send(count: int) -> None:
        for number in range(count):
            producer.produce(topic, key=str(number), value=b"{}")
        producer.flush()

    send(records)
    spec = FlowSpec("s", {}, {topic: ("v",)}, {}, {}, {})
    return Flow("main", spec, Reading(kafka, {}, 6), folder / "main"), send


def read(flow: Flow) -> int:
    """How many records are committed."""
    return sum(committed_offsets(flow.checkpoint)[1].get(*flow.spec.topics, {}).values())


def start(spark: SparkSession, flow: Flow, each: Callable[[Any, int], None] | None) -> StreamingQuery:
    frame = changelog(spark, flow)
    kind = str(spark.conf.get(DRAIN, "noop"))
    writer = frame.writeStream.format(kind) if each is None else frame.writeStream.foreachBatch(cast(Any, each))
    return begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow)


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("each", [None, lambda batch, _: batch.count()], ids=["drained", "foreachBatch"])
def test_a_query_lives_on_after_the_batch_that_it_replays(
    spark: SparkSession, kafka: str, tmp_path: Path, each: Callable[[Any, int], None] | None
) -> None:
    flow, send = flow_on(kafka, tmp_path, records=12, partitions=2)
    query = start(spark, flow, each)
    wait(query, lambda: read(flow) == 12)
    query.stop()
    newest, _ = committed_offsets(flow.checkpoint)
    (flow.checkpoint / "commits" / str(newest)).unlink()  # as kill -9 before the commit leaves it

    query = start(spark, flow, each)
    try:
        wait(query, lambda: committed_offsets(flow.checkpoint)[0] >= newest)
        wait(query, lambda: len(query.recentProgress) > 0)  # the source was asked for its metrics, and did not fail
        send(3)
        wait(query, lambda: read(flow) == 15)
        assert query.recentProgress[0].batchId == newest
    finally:
        query.stop()


def test_queries_that_have_nothing_to_read_rest_and_wake_at_once(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")  # each look is reported
    flows = [flow_on(kafka, tmp_path / str(number), records=3, partitions=2) for number in range(5)]
    queries = [start(spark, flow, None) for flow, _ in flows]
    try:
        for query, (flow, _) in zip(queries, flows, strict=True):
            wait(query, lambda flow=flow: read(flow) == 3)  # type: ignore[misc]
        time.sleep(2)  # what was begun meanwhile ends
        since = time.time()
        time.sleep(4)
        looks = [sum(when(report) > since for report in query.recentProgress) for query in queries]
        assert max(looks) < 10, f"each looks about once a second, and not a hundred times: {looks}"
        time.sleep(1)
        late = [woken(queries[number], *flows[number]) for number in (0, 1, 3, 4)]
        assert max(late) < 2.5, f"who has rested for long is told, and does not only look for itself: {late}"
        waits = []
        for _ in range(5):
            waits.append(woken(queries[2], *flows[2]))
            time.sleep(0.3)
        assert min(waits) < 0.5, "it was woken, and did not look for itself once a second"
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        began = time.monotonic()
        for query in queries:
            query.stop()
    assert time.monotonic() - began < 5, "a query that rests is stopped at once"


def woken(query: StreamingQuery, flow: Flow, send: Callable[[int], None]) -> float:
    """Seconds from a record until the batch begins that holds it."""
    known, sent = read(flow), time.time()
    send(1)
    wait(query, lambda: read(flow) > known and begun(query) > sent - 1)
    return begun(query) - sent


def begun(query: StreamingQuery) -> float:
    """When its newest batch with records began, in epoch seconds."""
    return max(when(report) for report in query.recentProgress if report["numInputRows"])


def when(report: Any) -> float:
    return datetime.fromisoformat(report["timestamp"]).timestamp()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    made = subprocess.run(command, check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"this user may not mount a file system: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.sampled
def test_a_full_disk_is_waited_for_and_named(
    spark: SparkSession, kafka: str, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flow, send = flow_on(kafka, small_disk, records=6, partitions=1)
    runner = Runner(spark, [(flow, lambda session, one: start(session, one, None))], lambda _flow: None)
    try:
        step_until(runner, lambda status: status.state == "running" and read(flow) == 6)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as out, suppress(OSError):
            while out.write(b"x" * 4096):
                pass
        send(6)
        status = step_until(runner, lambda status: status.state == "retrying")
        assert f"the disk that holds {flow.checkpoint} is full" in str(status.last_error)
        told = FlowStatus.read(flow.folder)
        assert told is not None and told.state == "retrying", "the word of a process that waits has room"
        step_until(runner, lambda status: status.restarts >= 2)
        filler.unlink()
        status = step_until(runner, lambda status: status.state == "running" and read(flow) == 12)
        assert status.last_error is None and "No space left" in status.restarted[-1]["reason"]
    finally:
        runner.stop()
    assert capfd.readouterr().err == ""


def step_until(runner: Runner, good: Callable[[FlowStatus], bool]) -> FlowStatus:
    until = time.monotonic() + SECONDS
    while True:
        (status,) = runner.step()
        if good(status):
            return status
        assert time.monotonic() < until and not runner.errors, status
        time.sleep(0.1)


def test_what_dying_threads_say_is_not_said_on_the_terminal(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A thread of the virtual machine that overflows its stack, and a worker that is gone in the middle of a job."""
    jvm: Any = spark.sparkContext._jvm
    jvm.System.err.println('Exception in thread "x" java.lang.StackOverflowError')

    def dies(batches: Any) -> Any:
        for _ in batches:
            raise BrokenPipeError("the reader is gone")
        yield from ()

    with pytest.raises(Exception, match="the reader is gone"):
        spark.range(4).mapInArrow(dies, "id long").collect()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    log = Path(str(jvm.System.getProperty("headwater.log"))).with_suffix(".out")
    assert "java.lang.StackOverflowError" in log.read_text()
    assert "Xss4m" in " ".join(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())


def test_who_waits_for_a_turn_plans_its_batch_when_it_has_come(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    """Three queries take turns; what comes while one waits is in the batch that it waits with."""
    flows = [flow_on(kafka, tmp_path / name, records=1, partitions=1) for name in "abc"]
    held, order, sizes = threading.Event(), list[str](), dict[str, list[int]]({"a": [], "b": [], "c": []})
    groups: dict[str, str] = {}

    def each(name: str) -> Callable[[Any, int], None]:
        def applied(batch: Any, _: int) -> None:
            group = groups[name] = str(batch.sparkSession.sparkContext.getLocalProperty(GROUP))
            try:
                order.append(name)
                assert name != "a" or held.wait(SECONDS)
                sizes[name].append(batch.count())
            finally:
                turn_done(batch.sparkSession, "t", group)

        return applied

    queries = []
    try:
        for (flow, _), name in zip(flows, "abc", strict=True):
            writer = changelog(spark, flow, turns="t").writeStream.foreachBatch(cast(Any, each(name)))
            queries.append(begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow))
            wait(queries[0], lambda: bool(order))
        a, b, c = (str(query.runId) for query in queries)
        wait(queries[2], lambda: turn_ahead(spark, "t", b) == turn_ahead(spark, "t", c) == a)
        assert order == ["a"] and groups["a"] == a and turn_ahead(spark, "t", a) == a
        flows[1][1](5)
        flows[2][1](5)
        queries[1].stop()  # who waits can be stopped, and holds up nobody
        held.set()
        wait(queries[2], lambda: bool(sizes["c"]))
        assert sizes == {"a": [1], "b": [], "c": [6]} and order == ["a", "c"]
        flows[0][1](2)
        wait(queries[0], lambda: sizes["a"] == [1, 2])
    finally:
        held.set()
        for query in queries:
            query.stop()


def test_a_query_that_fails_in_its_turn_lets_the_next_one_go_on(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    flows = [flow_on(kafka, tmp_path / name, records=1, partitions=1) for name in "ab"]
    seen = list[str]()

    def fails(batch: Any, _: int) -> None:
        seen.append("a")
        raise ValueError("on purpose")

    def counts(batch: Any, _: int) -> None:
        seen.append("b")

    queries = []
    try:
        for (flow, _), each in zip(flows, (fails, counts), strict=True):
            writer = changelog(spark, flow, turns="f").writeStream.foreachBatch(cast(Any, each))
            queries.append(begin(writer.option("checkpointLocation", str(flow.checkpoint)), flow))
            wait(queries[-1], lambda: bool(seen))
        wait(queries[1], lambda: seen == ["a", "b"])
    finally:
        for query in queries:
            query.stop()


@pytest.mark.parametrize(("count", "tasks"), [(20, {1}), (1000, {2, 3}), (4000, {8})])
def test_few_records_of_many_partitions_are_one_task(
    spark: SparkSession, kafka: str, tmp_path: Path, count: int, tasks: set[int]
) -> None:
    """And nothing of them is lost, doubled or out of its partition's order, also when Spark reads them again."""
    flow, _ = flow_on(kafka, tmp_path, records=count, partitions=8)
    flow = replace(flow, reading=replace(flow.reading, max_offsets=None))
    seen: list[tuple[int, list[list[tuple[int, int]]]]] = []

    def each(batch: Any, _: int) -> None:
        parts = [
            [(row.partition, row.offset) for row in rows]
            for rows in batch.select("partition", "offset").rdd.glom().collect()
        ]
        seen.append((batch.count(), parts))

    query = start(spark, flow, each)
    try:
        wait(query, lambda: read(flow) == count)
    finally:
        query.stop()
    ((counted, parts),) = seen
    assert counted == count == len({one for rows in parts for one in rows})
    assert len([rows for rows in parts if rows]) in tasks
    for rows in parts:
        for partition in {one for one, _ in rows}:
            offsets = [offset for one, offset in rows if one == partition]
            assert offsets == list(range(len(offsets)))
