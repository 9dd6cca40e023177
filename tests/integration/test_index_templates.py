"""Index templates of somebody's that match a sink's indices, as one on `*` does: documents stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused
from sinks.contract import STALE, WRITTEN, Answer, Item
from tests.support.sampling import in_turn
from tests.support.sinks import SEARCH, VIEW, Subject, doc, held, opened

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", in_turn(*SEARCH), indirect=True)]

ADDS = {"set": {"field": "received", "value": "now"}}
DROPS = {"drop": {"if": "ctx.n == 2"}}
WRITES = [Item(str(n), 1, doc(n)) for n in (1, 2)]


def has_processors(subject: Subject) -> bool:
    return subject.type == "opensearch"


@contextmanager
def template(
    subject: Subject, client: Elasticsearch, *processors: dict[str, Any], **parts: dict[str, Any]
) -> Iterator[str]:
    """A template that matches the sink's indices, and an ingest pipeline; a server without processors, as the local
    Elasticsearch is, has none of that name, and refuses each document for it."""
    if has_processors(subject):
        client.ingest.put_pipeline(id=subject.name, processors=list(processors))
    client.indices.put_index_template(
        name=subject.name, index_patterns=[f"{subject.name}*"], priority=1_000_000, template=parts
    )
    try:
        yield subject.name
    finally:
        client.indices.delete_index_template(name=subject.name)
        subject.clean()
        client.options(ignore_status=404).ingest.delete_pipeline(id=subject.name)


@pytest.mark.parametrize("setting", ["index.default_pipeline", "index.final_pipeline"])
def test_a_templates_ingest_pipeline_does_not_run(subject: Subject, client: Elasticsearch, setting: str) -> None:
    """Each document had a field more, which verify told and repair wrote again; dropped ones counted as written."""
    with template(subject, client, ADDS, DROPS, settings={setting: subject.name}):
        sink = opened(subject)
        sink.setup()
        assert sink.write(VIEW, [*WRITES, Item("3", 1, doc(3))]) == [WRITTEN] * 3
        assert sink.write(VIEW, [Item("3", 2, None)]) == [WRITTEN]
        assert held(sink) == {"1": (1, doc(1)), "2": (1, doc(2))}
        assert sink.write(VIEW, [Item("3", 1, doc(3))]) == [STALE]
        # An index that an older version has made under the template: the next start heals it.
        for index in (f"{subject.name}_g1", f"{subject.name}_g1_fences"):
            client.indices.put_settings(index=index, settings={setting: subject.name})
        sink.setup()
        assert sink.write(VIEW, [Item("2", 2, doc(2, "new"))]) == [WRITTEN]
        assert held(sink)["2"] == (2, doc(2, "new"))


def test_a_pipeline_of_the_files_own_runs_and_what_it_drops_is_told(subject: Subject, client: Elasticsearch) -> None:
    if not has_processors(subject):
        pytest.skip("this server has no ingest processors")
    with template(subject, client, DROPS):
        sink = opened(subject, settings={"default_pipeline": subject.name})
        sink.setup()
        first, second = sink.write(VIEW, WRITES)
        assert first == WRITTEN
        assert isinstance(second, Answer) and "ingest pipeline" in str(second.reason)
        assert list(held(sink)) == ["1"]


def test_a_template_that_leaves_parts_of_documents_out_loses_or_is_told(
    subject: Subject, client: Elasticsearch
) -> None:
    """Reading such an index ended in a KeyError, or told every document as different."""
    with template(subject, client, ADDS, mappings={"_source": {"enabled": False}, "dynamic": "strict"}):
        sink = opened(subject)
        sink.setup()
        assert sink.write(VIEW, [Item("1", 1, b'{"n":1,"more":2}')]) == [WRITTEN]
        assert held(sink) == {"1": (1, b'{"n":1,"more":2}')}
        sink.drop(VIEW)
        # As an older version has made it.
        client.indices.create(index=f"{subject.name}_g1", mappings={"dynamic": False})
        client.index(index=f"{subject.name}_g1", id="1", document={"n": 1}, refresh=True)
        for ask in (lambda: held(sink), lambda: sink.get(VIEW, ["1"])):
            with pytest.raises(SinkRefused, match="keeps no documents"):
                ask()
    with template(subject, client, ADDS, mappings={"_source": {"excludes": ["t"]}}):
        sink = opened(subject)
        try:
            sink.setup()
        except SinkRefused as error:
            assert "excludes" in str(error)
            assert not client.indices.exists(index=f"{subject.name}_g1")
        else:
            sink.write(VIEW, WRITES)
            assert held(sink)["1"] == (1, doc(1))


def test_a_template_that_asks_for_a_routing_is_told_before_anything_is_written(
    subject: Subject, client: Elasticsearch
) -> None:
    """Every document became a dead letter."""
    with template(subject, client, ADDS, mappings={"_routing": {"required": True}}):
        sink = opened(subject)
        try:
            sink.setup()
        except SinkRefused as error:
            assert "_routing" in str(error)
        else:
            assert sink.write(VIEW, WRITES) == [WRITTEN] * 2
