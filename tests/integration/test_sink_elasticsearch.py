"""What only the Elasticsearch sink does: indices, mappings, aliases, fences, per-item failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.contract import STALE, WRITTEN, Item, Outcome
from sinks.elasticsearch.bulk import encode
from sinks.elasticsearch.rehearsal import refusals
from sinks.retry import Patience
from tests.support.proxy import HttpGate
from tests.support.sampling import in_turn
from tests.support.sinks import PROPERTIES, SEARCH, VIEW, Subject, doc, held, items, opened

pytestmark = [pytest.mark.stack, pytest.mark.parametrize("subject", in_turn(*SEARCH), indirect=True)]


def target(subject: Subject, **over: Any) -> dict[str, Any]:
    return {"targets": {VIEW: {"index": subject.name, "properties": PROPERTIES} | over}}


def test_setup_makes_index_mapping_settings_and_aliases(subject: Subject, client: Elasticsearch) -> None:
    opened(subject, settings={"number_of_shards": 2, "index": {"max_result_window": 20000}}).setup()
    name = f"{subject.name}_g1"
    made = client.indices.get(index=name, flat_settings=True).body[name]
    assert made["mappings"]["dynamic"] == "false"
    assert made["mappings"]["properties"] == PROPERTIES
    assert made["mappings"]["_meta"] == {"headwater": {"sink": "tested", "view": VIEW, "generation": 1}}
    assert made["settings"]["index.number_of_shards"] == "2"
    assert made["settings"]["index.max_result_window"] == "20000"
    assert made["settings"]["index.gc_deletes"] == "1h"
    assert "index.refresh_interval" not in made["settings"]
    assert made["aliases"] == {subject.name: {}, f"{name}_w0": {"is_hidden": True, "is_write_index": True}}
    assert subject.name in client.indices.get_alias(name=subject.name).body[name]["aliases"]


@pytest.mark.parametrize(
    ("over", "settings", "words"),
    [
        ({}, {}, None),
        ({"properties": {"n": {"type": "nonesuch"}}}, {}, "nonesuch"),
        ({"properties": {"n": {"type": "text", "analyzer": "nobody"}}}, {}, "nobody"),
        ({"properties": {"n": {"type": "integer", "no_such": 1}}}, {}, "no_such"),
        ({}, {"number_of_shards": "many"}, "number_of_shards"),
        ({}, {"analysis": {"analyzer": {"a": {"type": "custom", "tokenizer": "nobody"}}}}, "nobody"),
    ],
)
def test_a_server_is_asked_whether_it_would_make_an_index(
    subject: Subject, client: Elasticsearch, over: dict[str, Any], settings: dict[str, Any], words: str | None
) -> None:
    found = refusals(subject.config(settings=settings, **target(subject, **over)))
    assert (VIEW in found and words in found[VIEW]) if words else not found, found
    assert client.indices.get(index=f"{subject.name}*").body == {}, "nothing was made"
    if words:
        with pytest.raises(SinkRefused):
            opened(subject, settings=settings, **target(subject, **over)).setup()


def test_an_index_of_another_pipeline_is_neither_written_nor_removed(subject: Subject, client: Elasticsearch) -> None:
    """A copy of a file under another name: `drop` of that pipeline removed the documents of the first one."""
    ours = opened(subject, pipeline="shop")
    ours.setup()
    ours.write(VIEW, items(3, 1))
    ours.refresh(VIEW)
    name = f"{subject.name}_g1"
    assert client.indices.get_mapping(index=name).body[name]["mappings"]["_meta"]["headwater"]["pipeline"] == "shop"
    copy = opened(subject, pipeline="copy")
    with pytest.raises(SinkRefused, match="was made by sink tested of pipeline shop"):
        copy.setup()
    copy.drop(VIEW)
    second = opened(subject, pipeline="copy", **target(subject, generation=2))
    second.setup()
    with pytest.raises(SinkRefused, match=r"see .*_g1, which sink tested of pipeline shop has made"):
        second.promote(VIEW, 1)
    second.drop(VIEW)
    assert client.count(index=subject.name).body["count"] == 3
    opened(subject).setup()  # one that does not say whose it is, as before
    ours.drop(VIEW)
    assert not client.indices.exists(index=name)


def test_readers_see_only_documents_under_the_name_and_its_patterns(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject)
    sink.setup()
    sink.write(VIEW, [*items(3, 1), Item("9", 1, None)])
    sink.refresh(VIEW)
    assert client.count(index=subject.name).body["count"] == 3
    assert client.count(index=f"{subject.name}*").body["count"] == 3


def test_a_written_document_is_searchable_within_seconds(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject)
    sink.setup()
    sink.write(VIEW, [Item("1", 1, doc(1, "found"))])
    for _ in range(40):
        if client.count(index=subject.name, query={"match": {"t": "found"}}).body["count"]:
            return
        time.sleep(0.1)
    pytest.fail("not searchable after 4 s")


def test_a_concrete_index_with_the_alias_name_is_refused(subject: Subject, client: Elasticsearch) -> None:
    client.indices.create(index=subject.name)
    with pytest.raises(SinkRefused, match="alias") as caught:
        opened(subject).setup()
    assert f"{subject.name}_g1" in str(caught.value)
    assert not client.indices.exists(index=f"{subject.name}_g1")


def test_an_index_of_someone_else_is_refused(subject: Subject, client: Elasticsearch) -> None:
    client.indices.create(index=f"{subject.name}_g1")
    with pytest.raises(SinkRefused, match="someone else"):
        opened(subject).setup()


def test_an_index_of_another_sink_is_refused(subject: Subject) -> None:
    opened(subject).setup()
    with pytest.raises(SinkRefused, match="tested"):
        opened(subject, name="other").setup()


def test_drop_removes_all_that_is_ours_and_nothing_else(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject)
    sink.setup()
    sink.write(VIEW, [*items(3, 1), Item("9", 1, None)])
    client.indices.create(index=f"{subject.name}_g1x")
    opened(subject, name="other").drop(VIEW)  # refused at its setup, it has nothing there, and can be dropped
    assert len(held(sink)) == 3
    sink.drop(VIEW)
    left = client.indices.get(index=f"{subject.name}*", expand_wildcards="all").body
    assert set(left) == {f"{subject.name}_g1x"}
    sink.drop(VIEW)
    sink.setup()
    assert held(sink) == {}


def test_a_changed_type_is_refused_and_names_the_field(subject: Subject, client: Elasticsearch) -> None:
    opened(subject).setup()
    changed = {**PROPERTIES, "n": {"type": "keyword"}}
    with pytest.raises(SinkRefused, match=r"\[n\].*\[long\] to \[keyword\]"):
        opened(subject, **target(subject, properties=changed)).setup()
    name = f"{subject.name}_g1"
    assert client.indices.get_mapping(index=name).body[name]["mappings"]["properties"] == PROPERTIES


def test_a_new_field_is_added(subject: Subject, client: Elasticsearch) -> None:
    opened(subject).setup()
    more = {**PROPERTIES, "m": {"type": "keyword"}}
    opened(subject, **target(subject, properties=more)).setup()
    name = f"{subject.name}_g1"
    assert client.indices.get_mapping(index=name).body[name]["mappings"]["properties"] == more


def test_a_changeable_setting_is_changed_and_a_fixed_one_refused(subject: Subject, client: Elasticsearch) -> None:
    opened(subject).setup()
    opened(subject, settings={"refresh_interval": "5s"}).setup()
    name = f"{subject.name}_g1"
    settings = client.indices.get_settings(index=name, flat_settings=True).body[name]["settings"]
    assert settings["index.refresh_interval"] == "5s"
    with pytest.raises(SinkRefused, match="number_of_shards"):
        opened(subject, settings={"number_of_shards": 3}).setup()


@pytest.mark.parametrize(
    "broken", [{"settings": {"refresh_interval": "soon"}}, {"settings": {"nonsense": 1}}], ids=["value", "name"]
)
def test_wrong_settings_are_refused(subject: Subject, client: Elasticsearch, broken: dict[str, Any]) -> None:
    with pytest.raises(SinkRefused, match="settings"):
        opened(subject, **broken).setup()


def test_an_unknown_field_type_is_refused(subject: Subject) -> None:
    with pytest.raises(SinkRefused, match="nonsense") as caught:
        opened(subject, **target(subject, properties={"n": {"type": "nonsense"}})).setup()
    assert "headwater rebuild" in str(caught.value)  # the file alone mends nothing


def test_a_second_generation_leaves_the_readers_where_they_are(subject: Subject, client: Elasticsearch) -> None:
    opened(subject).setup()
    opened(subject, **target(subject, generation=2)).setup()
    assert set(client.indices.get_alias(name=subject.name).body) == {f"{subject.name}_g1"}
    assert client.indices.exists(index=f"{subject.name}_g2")


def test_bulk_load_turns_refresh_off_and_setup_heals_it(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject)
    sink.setup()
    name = f"{subject.name}_g1"

    def interval() -> str | None:
        settings: dict[str, str] = client.indices.get_settings(index=name, flat_settings=True).body[name]["settings"]
        return settings.get("index.refresh_interval")

    sink.bulk_load(VIEW, True)
    assert interval() == "-1"
    sink.write(VIEW, items(5, 1))
    sink.bulk_load(VIEW, False)
    assert interval() is None
    assert client.count(index=subject.name).body["count"] == 5
    sink.bulk_load(VIEW, True)
    opened(subject).setup()
    assert interval() is None


def test_fault_15_only_the_poison_document_is_rejected(subject: Subject) -> None:
    sink = opened(subject)
    sink.setup()
    batch = [Item(str(n), 1, b'{"n":"no number"}' if n == 4321 else doc(n)) for n in range(5000)]
    batch.append(Item("broken", 1, b'{"n":1'))
    answers = sink.write(VIEW, batch)
    wrong = [n for n, answer in enumerate(answers) if answer != WRITTEN]
    assert wrong == [4321, 5000]
    assert answers[4321].outcome is Outcome.REJECTED
    assert "failed to parse field [n] of type [long]" in (answers[4321].reason or "")
    assert answers[5000].outcome is Outcome.REJECTED
    assert len(held(sink)) == 4999


def test_raw_line_breaks_in_a_document_do_not_break_the_request(subject: Subject) -> None:
    """A Postgres ``json`` column keeps the line breaks of its text, and a bulk request ends items with them."""
    sink = opened(subject)
    sink.setup()
    assert sink.write(VIEW, [Item("1", 1, b'{"n":1,\r\n"raw":{\n}}'), Item("2", 1, doc(2))]) == [WRITTEN, WRITTEN]
    assert held(sink)["1"] == (1, b'{"n":1,  "raw":{ }}')


def test_fields_without_a_mapping_are_kept_but_guess_no_type(subject: Subject, client: Elasticsearch) -> None:
    sink = opened(subject)
    sink.setup()
    assert sink.write(VIEW, [Item("1", 1, b'{"later":1}'), Item("2", 1, b'{"later":"text"}')]) == [WRITTEN, WRITTEN]
    assert held(sink) == {"1": (1, b'{"later":1}'), "2": (1, b'{"later":"text"}')}
    name = f"{subject.name}_g1"
    assert "later" not in client.indices.get_mapping(index=name).body[name]["mappings"]["properties"]


def test_fault_13_stays_deleted_after_elasticsearch_has_forgotten(subject: Subject, client: Elasticsearch) -> None:
    """With ``gc_deletes`` at 0 the server's own memory of deletes is gone at once, not after a minute (its default)."""
    sink = opened(subject, settings={"gc_deletes": "0s"})
    sink.setup()
    sink.write(VIEW, items(3, 10))
    sink.write(VIEW, [Item("1", 20, None)])
    time.sleep(1.5)
    client.indices.refresh(index=f"{subject.name}_g1")
    control = client.options(ignore_status=[404, 409]).delete(
        index=f"{subject.name}_g1", id="1", version=1, version_type="external_gte", refresh=True
    )
    assert control.meta.status == 404, "the server was to forget the delete; it remembers, so this test shows nothing"
    assert sink.write(VIEW, [Item("1", 15, doc(15)), Item("2", 15, doc(2))]) == [STALE, WRITTEN]
    assert set(held(sink)) == {"0", "2"}
    assert sink.write(VIEW, [Item("1", 20, doc(20))]) == [WRITTEN]


@pytest.mark.parametrize("deletes", [False, True], ids=["upserts", "deletes only"])
def test_an_index_deleted_underneath_is_refused_and_not_created_unmapped(
    subject: Subject, client: Elasticsearch, deletes: bool
) -> None:
    sink = opened(subject)
    sink.setup()
    sink.write(VIEW, items(10, 1))
    client.indices.delete(index=f"{subject.name}_g1")
    with pytest.raises(SinkRefused, match="gone"):
        sink.write(VIEW, [Item(str(n), 2, None) for n in range(10)] if deletes else items(10, 2))
    assert not client.indices.exists(index=f"{subject.name}_g1")
    assert not client.indices.exists(index=f"{subject.name}_g1_w0")


@pytest.mark.parametrize("item", [Item("1", 1, doc(1)), Item("1", 1, None)], ids=["upsert", "delete"])
def test_fences_deleted_underneath_are_refused(subject: Subject, client: Elasticsearch, item: Item) -> None:
    sink = opened(subject)
    sink.setup()
    client.indices.delete(index=f"{subject.name}_g1_fences")
    with pytest.raises(SinkRefused, match="gone"):
        sink.write(VIEW, [item])
    assert not client.indices.exists(index=f"{subject.name}_g1_fences_w0")


def test_fault_16_a_block_holds_the_batch_until_it_is_lifted(subject: Subject, client: Elasticsearch) -> None:
    """What a full disk does: every item of a bulk that answers 200 carries a 429."""
    sink = opened(subject, bulk_count=100)
    sink.setup()
    name = f"{subject.name}_g1"
    client.indices.put_settings(index=name, settings={"index.blocks.read_only_allow_delete": True})
    answers: list[object] = []
    writer = threading.Thread(target=lambda: answers.extend(sink.write(VIEW, items(1000, 1))), daemon=True)
    writer.start()
    writer.join(1.5)
    assert writer.is_alive()
    assert any("429" in reason and "of 100 items" in reason for reason in subject.waits)
    client.indices.put_settings(index=name, settings={"index.blocks.read_only_allow_delete": None})
    writer.join(60)
    assert answers == [WRITTEN] * 1000
    assert len(held(sink)) == 1000


def test_fault_2_only_the_items_that_failed_are_sent_again(subject: Subject, client: Elasticsearch) -> None:
    """Half of a bulk goes to an index that is blocked: the other half must not be sent twice."""
    for name in ("a", "b"):
        client.indices.create(index=f"{subject.name}_g_{name}", aliases={f"{subject.name}_{name}_w": {}})
    client.indices.put_settings(index=f"{subject.name}_g_b", settings={"index.blocks.write": True})
    sink = opened(subject)
    sent: list[int] = []
    bulk = sink._bulk
    real = bulk._client.bulk

    def counting(**arguments: Any) -> Any:
        sent.append(arguments["operations"].count(b"external_gte"))
        if len(sent) == 2:
            client.indices.put_settings(index=f"{subject.name}_g_b", settings={"index.blocks.write": None})
        return real(**arguments)

    bulk._client.bulk = counting  # type: ignore[method-assign]
    lines = []
    for n in range(10):
        line = encode(n, Item(str(n), 1, doc(n)))
        to_b = b'{"index":{"_index":"%b",' % f"{subject.name}_b_w".encode()
        lines.append(line._replace(data=line.data.replace(b'{"index":{', to_b)) if n % 2 else line)
    answers: dict[int, Any] = {}
    bulk.send(f"{subject.name}_a_w", lines, Patience("test", give_up_seconds=30), answers.__setitem__)
    assert sent == [10, 5]
    assert set(answers.values()) == {WRITTEN}
    assert len(answers) == 10


@contextmanager
def gate(subject: Subject, decide: Callable[[str, bytes], int | None]) -> Iterator[HttpGate]:
    made = HttpGate(*subject.address, decide)
    try:
        yield made
    finally:
        for sink in subject._open:
            sink.close()
        made.close()


def test_a_request_too_large_for_something_in_between_is_cut(subject: Subject) -> None:
    opened(subject).setup()
    limit = 20_000
    with gate(subject, lambda _path, body: 413 if len(body) > limit else None) as between:
        sink = opened(subject, url=subject.via(between.port))
        batch = [*items(1000, 1), Item("huge", 1, doc(1, "x" * limit))]
        answers = sink.write(VIEW, batch)
        assert answers[:1000] == [WRITTEN] * 1000
        assert answers[1000].outcome is Outcome.REJECTED
        assert "413" in (answers[1000].reason or "")
        assert max(between.passed) <= limit
    assert len(held(opened(subject))) == 1000


def test_fault_16_an_overloaded_server_gets_smaller_requests(subject: Subject) -> None:
    opened(subject).setup()
    sizes: list[int] = []

    def busy(path: str, body: bytes) -> int | None:
        count = body.count(b"external_gte")
        sizes.append(count)
        return 429 if count > 100 else None

    with gate(subject, busy) as between:
        sink = opened(subject, url=subject.via(between.port))
        assert sink.write(VIEW, items(1000, 1)) == [WRITTEN] * 1000
    assert 1000 in sizes
    assert len(held(opened(subject))) == 1000
    assert any("429" in reason for reason in subject.waits)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_fault_16_a_gateway_without_a_server_holds_the_batch(subject: Subject, status: int) -> None:
    opened(subject).setup()
    refusals = iter([status] * 5)
    with gate(subject, lambda _path, _body: next(refusals, None)) as between:
        sink = opened(subject, url=subject.via(between.port))
        assert sink.write(VIEW, items(10, 1)) == [WRITTEN] * 10
    assert len(subject.waits) == 5


@pytest.mark.parametrize("status", [401, 403])
def test_missing_rights_are_refused_at_once(subject: Subject, status: int) -> None:
    opened(subject).setup()
    with gate(subject, lambda _path, _body: status) as between:
        sink = opened(subject, url=subject.via(between.port), give_up_seconds=None)
        with pytest.raises(SinkRefused, match=str(status)) as caught:
            sink.write(VIEW, items(1, 1))
    assert "password, api_key or signer" in str(caught.value)


def test_a_page_that_is_no_search_servers_is_waited_for_and_named(subject: Subject) -> None:
    said = r"the answer 200 is not the server's own.*<html>no</html>"
    with gate(subject, lambda _path, _body: 200) as between, pytest.raises(SinkUnavailable, match=said):
        opened(subject, url=subject.via(between.port)).setup()


def test_the_other_product_is_refused_and_named(subject: Subject) -> None:
    """Its answers would look right until the first one that does not."""
    as_other, said = {
        "elasticsearch": ("opensearch", "or another `type`: elasticsearch"),
        "opensearch": ("elasticsearch", "set `type: opensearch`"),
    }[subject.type]
    with pytest.raises(SinkRefused, match=said):
        opened(subject, type=as_other).setup()


def test_an_id_of_511_bytes_is_written_and_deleted(subject: Subject) -> None:
    sink = opened(subject)
    sink.setup()
    key = "ü" * 255 + "x"
    assert sink.write(VIEW, [Item(key, 1, doc(1))]) == [WRITTEN]
    assert sink.write(VIEW, [Item(key, 2, None)]) == [WRITTEN]
    assert sink.write(VIEW, [Item(key + "y", 1, doc(1))])[0].outcome is Outcome.REJECTED


def test_one_document_is_quick(subject: Subject) -> None:
    """Not a benchmark: catches a sleep, a new connection or a thread hand-off on the way of a single document."""
    sink = opened(subject)
    sink.setup()
    taken = []
    for version in range(60):
        started = time.perf_counter()
        sink.write(VIEW, [Item("1", version, doc(version))])
        taken.append(time.perf_counter() - started)
    assert sorted(taken)[30] < 0.1
    assert sink._pool is None
