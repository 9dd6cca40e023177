"""Whether a generation's database and topics are those that are there, asked of Postgres and Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from operations.opened import accept, open_generation, same_log
from operations.recapture import Recapture, _note, begun
from operations.state.catalogue import source_catalogue
from tests.support.source import SourceDatabase, eventually

pytestmark = pytest.mark.stack


def test_a_topic_that_was_made_anew_is_another_log(source: SourceDatabase, tmp_path: Path) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = source.pipeline("public.t", engine={"state_dir": str(tmp_path)})
    catalogue, topic = source_catalogue(pipeline), pipeline.topic("public.t")
    admin = AdminClient({"bootstrap.servers": source.endpoints.kafka})

    def make() -> None:
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)

    make()
    build = open_generation(pipeline, catalogue, "cache", 1)
    accept(build)
    build.generation.unlock()
    (build.generation.checkpoint("main") / "commits").mkdir(parents=True)
    assert same_log(pipeline, catalogue, build.generation)
    admin.delete_topics([topic])[topic].result(30)
    assert eventually(lambda: topic not in admin.list_topics(timeout=10).topics, 60)
    make()
    assert not same_log(pipeline, catalogue, build.generation)


def test_a_recapture_is_of_the_database_that_answers(source: SourceDatabase, tmp_path: Path) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = source.pipeline("public.t", engine={"state_dir": str(tmp_path)})
    now = source_catalogue(pipeline)
    _note(pipeline, Recapture(1.0, now.system_identifier, now.timeline, dropped=True))
    assert begun(pipeline) is not None
    _note(pipeline, Recapture(1.0, now.system_identifier + "1", now.timeline, dropped=True))
    assert begun(pipeline) is None
