"""Elasticsearch: the aliases of generations and leases, and what an earlier version left."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticsearch import ApiError, Elasticsearch

from cdc.errors import Fenced, SinkRefused
from cdc.pipeline import load
from operations.freshness.answering import Answering
from sinks.contract import WRITTEN, Item
from sinks.elasticsearch import ElasticsearchSink
from tests.support.sampling import in_turn
from tests.support.sinks import SEARCH, VIEW, Subject, doc, held, items, opened
from tests.support.watched import NOWHERE, ROOT

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", in_turn(*SEARCH), indirect=True)]


def aliases(client: Elasticsearch, subject: Subject) -> dict[str, set[str]]:
    """Index -> what is left of its aliases' names without the subject's."""
    found = client.indices.get_alias(index=f"{subject.name}_g*", expand_wildcards="all").body
    short = {index.removeprefix(subject.name): spec["aliases"] for index, spec in found.items()}
    return {index: {name.removeprefix(subject.name) for name in names} for index, names in short.items()}


def test_a_takeover_replaces_the_write_aliases_of_documents_and_fences(subject: Subject, client: Elasticsearch) -> None:
    subject.open(token=5).setup()
    assert aliases(client, subject) == {"_g1": {"", "_g1_w5"}, "_g1_fences": {"_g1_fences_w5"}}
    subject.open(token=1_795_236_777).setup()
    assert aliases(client, subject) == {
        "_g1": {"", "_g1_w1795236777"},
        "_g1_fences": {"_g1_fences_w1795236777"},
    }


def test_an_index_that_was_put_back_shows_the_claim_of_then(subject: Subject, client: Elasticsearch) -> None:
    """A snapshot has an index's aliases: the documents' alone, or the fences' too."""
    sink = opened(subject, token=5)
    assert sink.oldest_claim(VIEW) is None
    sink.setup()
    subject.open(token=9).setup()
    assert sink.oldest_claim(VIEW) == sink.claimed(VIEW) == 9
    for index, newest in ((f"{subject.name}_g1", 9), (f"{subject.name}_g1_fences", 5)):
        now, then = ({"index": index, "alias": f"{index}_w{token}"} for token in (9, 5))
        client.indices.update_aliases(actions=[{"remove": now}, {"add": {**then, "is_hidden": True}}])
        assert (sink.oldest_claim(VIEW), sink.claimed(VIEW)) == (5, newest)


def test_indices_of_an_earlier_version_are_taken_over(subject: Subject, client: Elasticsearch) -> None:
    """Before leases the write aliases had no number, and processes of that version write through them."""
    sink = subject.open()
    sink.setup()
    sink.write(VIEW, items(3, 5))
    for index in (f"{subject.name}_g1", f"{subject.name}_g1_fences"):
        client.indices.update_aliases(
            actions=[
                {"remove": {"index": index, "alias": f"{index}_w0"}},
                {"add": {"index": index, "alias": f"{index}_w", "is_hidden": True}},
            ]
        )
    assert sink.claimed(VIEW) is None
    heir = subject.open(token=7)
    heir.setup()
    assert aliases(client, subject) == {"_g1": {"", "_g1_w7"}, "_g1_fences": {"_g1_fences_w7"}}
    assert heir.write(VIEW, items(3, 6)) == [WRITTEN] * 3
    assert len(held(heir)) == 3


def test_a_restored_index_with_the_same_alias_stops_no_writes_or_holds_them_all(
    subject: Subject, client: Elasticsearch
) -> None:
    """Restored under another name it brings its aliases; each item was a dead letter then."""
    sink = subject.open()
    sink.setup()
    index, alias, restored = f"{subject.name}_g1", f"{subject.name}_g1_w0", f"restored-{subject.name}"
    brought = {"index": restored, "alias": alias, "is_hidden": True}
    client.indices.create(index=restored)
    try:
        client.indices.update_aliases(actions=[{"add": brought}])
        assert sink.write(VIEW, items(3, 5)) == [WRITTEN] * 3
        with pytest.raises(ApiError, match="more than one write index"):
            client.indices.update_aliases(actions=[{"add": {**brought, "is_write_index": True}}])
        # As an earlier version has set it.
        client.indices.update_aliases(actions=[{"add": {**brought, "index": index, "is_write_index": False}}])
        with pytest.raises(SinkRefused, match=f"the alias {alias}, by which {index} is written, leads to {restored}"):
            sink.write(VIEW, items(3, 6))
        subject.open().setup()
        assert sink.write(VIEW, items(3, 6)) == [WRITTEN] * 3
        assert client.count(index=restored).body["count"] == 0 and len(held(sink)) == 3
    finally:
        client.indices.delete(index=restored)


def test_only_the_first_generation_shows_itself_to_readers(subject: Subject, client: Elasticsearch) -> None:
    second, first = subject.open(generation=2), subject.open()
    second.setup()
    assert aliases(client, subject) == {"_g2": {"_g2_w0"}, "_g2_fences": {"_g2_fences_w0"}}
    assert second.living(VIEW) is None
    first.setup()
    assert second.living(VIEW) == 1
    second.promote(VIEW, 1)
    first.setup()
    second.setup()
    assert second.living(VIEW) == 2, "setup leaves the readers where they are"
    second.drop(VIEW)
    assert first.living(VIEW) is None
    first.promote(VIEW, 2)
    assert first.living(VIEW) == 1


def test_a_promotion_shows_what_was_written_the_moment_before(subject: Subject, client: Elasticsearch) -> None:
    first, second = subject.open(), subject.open(generation=2)
    for sink in (first, second):
        assert isinstance(sink, ElasticsearchSink)
        sink.setup()
    second.bulk_load(VIEW, True)
    second.write(VIEW, items(500, 1))
    second.promote(VIEW, 1)
    assert client.count(index=subject.name).body["count"] == 500


def test_an_alias_that_was_deleted_is_set_again_and_another_one_told(
    subject: Subject, client: Elasticsearch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing fails and nothing lags when readers find nothing, because the index is written to by another name."""
    sink = subject.open()
    sink.setup()
    sink.write(VIEW, items(3, 1))
    pipeline = load(ROOT / "examples/flights/pipeline.yaml", {**NOWHERE, "HEADWATER_HOME": str(tmp_path)})
    looking = Answering(pipeline, "search")
    looking._opened = 1, [VIEW], sink
    looking.lead()
    assert looking.astray is None and not caplog.messages
    client.indices.delete_alias(index=f"{subject.name}_g1", name=subject.name)
    looking.lead()
    assert looking.astray is None and "was gone, and leads to generation 1 again" in caplog.text
    assert client.count(index=subject.name).body["count"] == 3
    client.indices.delete_alias(index=f"{subject.name}_g1", name=subject.name)
    client.indices.create(index=f"{subject.name}_gx", aliases={subject.name: {}})
    looking.lead()
    assert looking.astray is not None and "_gx" in looking.astray
    second = subject.open(generation=2)
    second.setup()
    client.indices.delete(index=f"{subject.name}_gx")
    second.promote(VIEW, 1)
    looking.lead()
    assert looking.astray == f"readers of view {VIEW} see generation 2, and this sink keeps generation 1"
    second.drop(VIEW)
    client.indices.create(index=subject.name)
    looking.lead()
    assert looking.astray is not None and subject.name in looking.astray


def test_setup_gives_no_alias_that_was_deleted_to_a_generation_that_readers_have_left(
    subject: Subject, client: Elasticsearch
) -> None:
    """Readers got the older definition's documents then, and the living generation refused to start, for good."""
    first, second = subject.open(), subject.open(generation=2)
    first.setup()
    second.setup()
    second.promote(VIEW, 1)
    client.indices.delete_alias(index=f"{subject.name}_g2", name=subject.name)
    first.setup()
    second.setup()
    assert first.living(VIEW) is None
    second.promote(VIEW, 2)  # as `run` does, which knows
    first.setup()
    assert first.living(VIEW) == 2


def test_an_alias_that_someone_leads_elsewhere_is_not_moved(subject: Subject, client: Elasticsearch) -> None:
    first, second = subject.open(), subject.open(generation=2)
    first.setup()
    second.setup()
    client.indices.create(index=f"{subject.name}_gx", aliases={subject.name: {}})
    with pytest.raises(SinkRefused, match="_gx"):
        second.promote(VIEW, 1)


def test_a_deleted_index_is_not_called_a_takeover(subject: Subject, client: Elasticsearch) -> None:
    sink = subject.open(token=5)
    sink.setup()
    client.indices.delete(index=f"{subject.name}_g1")
    with pytest.raises(SinkRefused, match="gone"):
        sink.write(VIEW, [Item("1", 1, doc(1))])


@pytest.mark.parametrize("of", ["g1", "g1_fences"])
@pytest.mark.parametrize("document", [doc(2), None])
def test_a_removed_write_alias_is_not_called_a_lost_index(
    subject: Subject, client: Elasticsearch, of: str, document: bytes | None
) -> None:
    """Whoever cleans aliases up was told that the index is gone, and to rebuild what is whole."""
    sink = subject.open(token=5)
    sink.setup()
    sink.write(VIEW, items(2, 1))
    client.indices.delete_alias(index=f"{subject.name}_{of}", name="*")
    with pytest.raises(SinkRefused, match=f"{of} is there, but has lost the alias") as refused:
        sink.write(VIEW, [Item("1", 2, document)])
    assert "`headwater run FILE` again" in str(refused.value)
    again = subject.open(token=6)
    again.setup()
    assert again.write(VIEW, [Item("1", 2, document)]) == [WRITTEN]


def test_fences_are_closed_to_a_zombie_before_its_deletes_leave_one(subject: Subject, client: Elasticsearch) -> None:
    zombie = subject.open(token=5)
    zombie.setup()
    zombie.write(VIEW, items(2, 1))
    subject.open(token=6).setup()
    with pytest.raises(Fenced):
        zombie.write(VIEW, [Item("1", 9, None)])
    for fence in (".1", "highest"):
        assert not client.exists(index=f"{subject.name}_g1_fences", id=fence)
