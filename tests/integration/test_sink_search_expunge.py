"""Deleted documents leave the files of an OpenSearch too; Elasticsearch's are looked into by test_erase.py."""

from __future__ import annotations

import pytest

from sinks.contract import Item
from sinks.elasticsearch.expunge import FOR_THE_MOMENT, Expunger
from sinks.elasticsearch.snapshots import snapshots_of
from tests.support.sinks import VIEW, Subject, held, items, opened

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", ["opensearch"], indirect=True)]


def test_deleted_documents_leave_the_files(subject: Subject) -> None:
    sink = opened(subject)
    sink.setup()
    sink.write(VIEW, items(200, 1))
    sink.refresh(VIEW)
    sink.write(VIEW, [Item(str(n), 2, None) for n in range(5)])
    server, said = Expunger(subject.config()), list[str]()
    index = server.indices(VIEW)[0]
    # A delete leaves a note of itself, which OpenSearch counts among the deleted.
    assert server.deleted(index) in (5, 10)
    before = server.were(index)
    server.put(index, FOR_THE_MOMENT)
    server.expunge(index, server.written(index), said.append, 180.0)
    server.put(index, before)
    assert server.deleted(index) == 0
    assert server.were(index) == before == dict.fromkeys(FOR_THE_MOMENT)
    server.close()
    assert len(held(sink)) == 195
    assert snapshots_of(subject.config(), [index]) == {}
