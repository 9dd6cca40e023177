"""Deleted documents leave the files of an OpenSearch too; Elasticsearch's are looked into by test_erase.py.

So do versions of documents that were laid out to be judged by standing queries, where the server has no percolator.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cdc.pipeline import SearchSink
from operations.erase import servers as erasing
from operations.erase.note import Note
from operations.erase.readers import Build
from sinks.contract import Item
from sinks.elasticsearch.expunge import FOR_THE_MOMENT, Expunger
from sinks.elasticsearch.settings import read_settings
from sinks.elasticsearch.snapshots import snapshots_of
from sinks.elasticsearch.standing.queries import Query
from sinks.elasticsearch.standing.searched import Searched
from tests.support import erase_cases
from tests.support.disks import holding
from tests.support.servers import servers
from tests.support.sinks import VIEW, Subject, client_of, doc, held, items, opened

pytestmark = [pytest.mark.stack, pytest.mark.sampled(turn=1, of=2)]


@pytest.mark.parametrize("subject", ["opensearch"], indirect=True)
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


class Killed(Searched):
    """One that ends before it has removed what it had laid out."""

    def _delete(self, ids: Sequence[str]) -> None:
        pass


def a_build() -> SimpleNamespace:
    """A generation with the one view, as far as an erasure of its indices asks."""
    opened = SimpleNamespace(part=SearchSink.model_construct(), sink="tested", number=1)
    return SimpleNamespace(opened=opened, views=[SimpleNamespace(name=VIEW)])


def test_documents_that_were_laid_out_to_be_judged_leave_the_files(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lay in the index of the standing queries, in no place that an erasure looked into."""
    opened(subject).setup()
    value, settings, data = secrets.token_urlsafe(36), read_settings(subject.config()), servers().site.home / "data"
    server = Expunger(subject.config())
    assert server.judge(VIEW) is None
    with client_of(subject) as client:
        one = Searched(client, settings, settings.targets[VIEW])
        one.setup()
        one.follow({"all": Query("all", 1, b'{"match_all":{}}')})
        assert one.judge([doc(1, value), doc(2, value)]).ids == [{"all@1"}] * 2
        killed = Killed(client, settings, settings.targets[VIEW])
        killed.follow({})
        for count in (3, 1):
            killed.judge([doc(1, value)] * count)
        judge = server.judge(VIEW)
        assert judge is not None and judge.index == server.indices(VIEW)[2]
        marks = judge.laid_out()
        assert (judge.count(), len(marks)) == (4, 2)
        assert (server.deleted(judge.index) or 0) >= 2
        assert holding(data / "elasticsearch", value)
        judge.remove(marks[:1])
        assert judge.laid_out() == marks[1:]
        monkeypatch.setattr(erasing, "_expunger", lambda _: nullcontext(server))
        monkeypatch.setattr(erasing, "_own", lambda *_: 0)
        builds, row = [cast(Build, a_build())], erase_cases.subject(tmp_path)
        [_, before] = erasing._indices(row, builds[0])
        assert (before.name, before.found, before.empty) == (judge.index, 0, False), before
        done = erasing.erase_indices(row, builds, Note(row.pipeline), erasing.mark_indices(row, builds), 180.0)
        assert [(place.name, place.empty) for place in done] == [(index, True) for index in server.indices(VIEW)[::2]]
        assert (judge.count(), judge.laid_out(), server.deleted(judge.index)) == (0, [], 0)
        assert server.were(judge.index) == dict.fromkeys(FOR_THE_MOMENT)
        assert not holding(data / "elasticsearch", value)
        # The queries stand as before.
        assert one.judge([doc(1)]).ids == [{"all@1"}]
    server.close()
