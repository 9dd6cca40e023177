"""When flows are at the end that the log had: also those that are taken up after somebody has begun to look."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import KafkaError
from operations.status import caught_up
from operations.status.caught_up import Goal
from spark.running import Running

PIPELINE = cast(Any, SimpleNamespace(kafka=SimpleNamespace(bootstrap="", options_plain=dict)))


class Log:
    """Topics of one partition.

    Attributes:
        held: topic -> its end; none for one that is not there.
        away: the brokers do not answer.
    """

    def __init__(self, **held: int) -> None:
        self.held, self.away = held, False

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """As the brokers' answer."""
        if self.away:
            raise KafkaError("no answer")
        try:
            return {topic: {0: self.held[topic]} for topic in topics}
        except KeyError as error:
            raise KafkaError(f"topic {error} does not exist") from error

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log(a=5, b=7)
    monkeypatch.setattr(caught_up, "LogEnds", lambda *_: made)
    return made


def flow(folder: Path, topic: str, name: str = "", **said: Any) -> Running:
    """A flow that reads one topic, and has committed nothing."""
    checkpoint = folder / (name or topic)
    made = SimpleNamespace(spec=SimpleNamespace(topics=[topic]), checkpoint=checkpoint)
    return cast(Running, SimpleNamespace(flow=made, filling=False, deferred=0, failed=False, query=None, **said))


def commits(run: Running, offset: int) -> None:
    """Its checkpoint, as Spark leaves it after a batch."""
    [topic] = run.flow.spec.topics
    for name, lines in (("offsets", ["v1", "{}", json.dumps({topic: {"0": offset}})]), ("commits", ["v1", "{}"])):
        (run.flow.checkpoint / name).mkdir(parents=True, exist_ok=True)
        (run.flow.checkpoint / name / "0").write_text("\n".join(lines))


def test_a_flow_that_is_taken_up_late_has_its_topic_to_read(tmp_path: Path, log: Log) -> None:
    """Its sink was held by a process that was just ending: "caught up", exit code 0, and nothing of it was read."""
    first, late = flow(tmp_path, "a"), flow(tmp_path, "b")
    running = [first]
    with Goal(PIPELINE, running) as goal:
        commits(first, 5)
        assert goal.caught_up()
        running.append(late)
        log.away = True
        assert not goal.caught_up() and goal.way(late) == (0, 0)  # nobody knows how far it is to go
        log.away = False
        assert not goal.caught_up() and goal.way(late) == (0, 7)
        commits(late, 6)
        assert not goal.caught_up() and goal.way(late) == (6, 7)
        commits(late, 7)
        log.held = {"a": 50, "b": 70}  # a writer that does not rest keeps nobody from being caught up
        assert goal.caught_up()


def test_one_that_comes_late_has_all_of_its_topic_to_read_whoever_knew_an_end_of_it(tmp_path: Path, log: Log) -> None:
    """Of a sink that was added after days the whole first load was "100% of the log", which had grown since."""
    first = flow(tmp_path, "a")
    running = [first]
    with Goal(PIPELINE, running) as goal:
        commits(first, 5)
        log.held["a"] = 1_000
        late = flow(tmp_path, "a", "late")
        running.append(late)
        assert not goal.caught_up()
        commits(late, 50)
        log.held["a"] = 2_000
        assert not goal.caught_up() and goal.way(late) == (50, 1_000) and goal.way(first) == (5, 5)
        commits(late, 1_000)
        assert goal.caught_up()
        running.remove(first)  # a pause
        goal.look()
        running.append(flow(tmp_path, "a"))
        assert not goal.caught_up() and goal.way(running[-1]) == (5, 2_000)


def test_flows_that_come_together_are_one_question(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ends = list[list[str]](), log.ends
    monkeypatch.setattr(log, "ends", lambda topics: asked.append(list(topics)) or ends(topics))
    running = [flow(tmp_path, "a")]
    with Goal(PIPELINE, running) as goal:
        running += [flow(tmp_path, "a", "x"), flow(tmp_path, "b", "y")]
        for _ in range(3):
            goal.look()
            assert [goal.way(run)[1] for run in running] == [5, 5, 7]
    assert asked == [["a"], ["a", "b"]]


def test_a_topic_that_is_not_there_holds_up_only_who_reads_it(tmp_path: Path, log: Log) -> None:
    first, late = flow(tmp_path, "a"), flow(tmp_path, "c")
    running = [first]
    with Goal(PIPELINE, running) as goal:
        commits(first, 5)
        running.append(late)
        assert not goal.caught_up() and goal.way(first) == (5, 5)
        late.failed = True
        assert goal.caught_up()


def test_nothing_is_caught_up_while_kafka_has_not_said_where_it_ends(tmp_path: Path, log: Log) -> None:
    log.away = True
    first = flow(tmp_path, "a")
    with Goal(PIPELINE, [first]) as goal:
        assert not goal.caught_up()
        log.away = False
        assert not goal.caught_up() and goal.way(first) == (0, 5)
        commits(first, 5)
        assert goal.caught_up()


def test_while_kafka_is_away_each_checkpoint_is_read_once_a_look(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flow read those of all: of 500 flows a quarter of a million files, each second."""
    read = list[Path]()
    monkeypatch.setattr(caught_up, "furthest", lambda flow, *_: read.append(flow.checkpoint) or {})
    log.away = True
    running = [flow(tmp_path, "a", str(number)) for number in range(9)]
    with Goal(PIPELINE, running) as goal:
        for looks in (1, 2, 3):
            assert len(read) == 9 * looks and [goal.way(run) for run in running] == [(0, 0)] * 9
            assert len(read) == 9 * looks
            goal.look()
            goal.way(running[0])


def test_who_is_ahead_of_a_log_that_became_shorter_is_not_caught_up(tmp_path: Path, log: Log) -> None:
    """«caught up», though all that came in the lost places was about to be skipped."""
    first, other = flow(tmp_path, "a"), flow(tmp_path, "b")
    commits(first, 6)
    commits(other, 7)
    with Goal(PIPELINE, [first, other]) as goal:
        assert not goal.caught_up()
        log.held["a"] = 6  # a broker that had just come back
        assert goal.caught_up()
    log.held["a"] = 5
    with Goal(PIPELINE, [first, other]) as goal:
        first.failed = True  # its start has refused it
        assert goal.caught_up()
