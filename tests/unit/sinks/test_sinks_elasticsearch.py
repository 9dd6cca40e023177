"""The Elasticsearch sink's pure parts: encoding, cutting, judging, mappings, raw sources."""

from __future__ import annotations

import json
import ssl
import threading
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from elastic_transport import ApiResponseMeta, ConnectionTimeout, HttpHeaders, NodeConfig, TlsError
from elastic_transport import ConnectionError as NoConnection
from elasticsearch import ApiError, BadRequestError
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from cdc.keys import document_id, id_bytes, is_stray
from sinks.contract import STALE, WRITTEN, Item, Outcome
from sinks.elasticsearch import mapping
from sinks.elasticsearch.bulk import POISON_TRIES, Line, chunks, encode, judge
from sinks.elasticsearch.client import RawSourceSerializer, is_passing, split_sources
from sinks.elasticsearch.housekeeping import Housekeeping
from sinks.elasticsearch.index import Indices
from sinks.elasticsearch.settings import Target, read_settings

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# Texts that try to look like the envelope around a source.
TRICKY = st.sampled_from(['"_source":', '_source":', '{"_source":{}}', "\\", '\\"', '"', "}", '"_source"'])


# --- encoding and cutting ---------------------------------------------------------------------------------------------


@given(
    key=st.text(min_size=1, max_size=20),
    version=st.integers(0, 2**63 - 1),
    document=st.none() | st.dictionaries(st.text(), JSON),
)
def test_an_encoded_item_is_one_action_line_and_one_document_line(
    key: str, version: int, document: dict[str, Any] | None
) -> None:
    raw = None if document is None else json.dumps(document, indent=1).encode()
    line = encode(7, Item(key, version, raw))
    parts = line.data.split(b"\n")
    assert line.place == 7
    assert parts[-1] == b""
    action = json.loads(parts[0])
    assert action == {
        "delete" if raw is None else "index": {"_id": key, "version": version, "version_type": "external_gte"}
    }
    assert len(parts) == (2 if raw is None else 3)
    if raw is not None:
        assert json.loads(parts[1]) == document


@given(parts=st.lists(st.text(max_size=9), min_size=2, max_size=3), other=st.none() | st.text(max_size=4))
def test_a_routed_document_is_found_by_its_key_alone(parts: list[str], other: str | None) -> None:
    at = len(parts) - 1
    place = Target("v", "i", 1, {}, routing=(at, len(parts)))
    key = document_id(parts)
    address = place.address(key)
    assert address == (key, parts[at] or None)
    action = json.loads(encode(0, Item(key, 1, None), address).data)["delete"]
    assert (action["_id"], action.get("routing")) == address
    assert place.key(key, address.routing) == key  # type: ignore[attr-defined]
    # What lies at another place than ours would has a key of its own, which leads there.
    if other != address.routing:  # type: ignore[attr-defined]
        stray = place.key(key, other)
        assert is_stray(stray)
        assert place.address(stray) == (key, other)
        id_bytes(stray)


def test_an_id_of_nobodys_and_an_index_without_routing() -> None:
    routed, plain = Target("v", "i", 1, {}, routing=(0, 2)), Target("v", "i", 1, {})
    assert routed.address("foreign") == ("foreign", None)
    assert routed.key("foreign", None) == "foreign"
    assert plain.address("a|b") == ("a|b", None)
    assert plain.address(plain.key("a|b", "x")) == ("a|b", "x")


@given(
    sizes=st.lists(st.integers(1, 50), max_size=60),
    max_bytes=st.integers(1, 120),
    max_count=st.integers(1, 10),
)
def test_chunks_keep_every_line_in_order_and_within_bounds(sizes: list[int], max_bytes: int, max_count: int) -> None:
    lines = [Line(place, b"x" * size) for place, size in enumerate(sizes)]
    cut = list(chunks(lines, max_bytes, max_count))
    assert [line for chunk in cut for line in chunk] == lines
    for chunk in cut:
        assert 0 < len(chunk) <= max_count
        assert len(chunk) == 1 or sum(len(line.data) for line in chunk) <= max_bytes


# --- judging ----------------------------------------------------------------------------------------------------------


def failed(status: int, kind: str, reason: str = "why") -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": reason}}


@pytest.mark.parametrize("status", [200, 201, 404])
def test_written(status: int) -> None:
    assert judge({"status": status}, 1) == WRITTEN


def test_a_conflict_is_stale() -> None:
    assert judge(failed(409, "version_conflict_engine_exception"), 1) == STALE


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "es_rejected_execution_exception"),
        (503, "unavailable_shards_exception"),
        (429, "cluster_block_exception"),
        (403, "cluster_block_exception"),
        (500, "anything"),
        # A shard that moves, starts or closes just now.
        (404, "index_shard_closed_exception"),
        (404, "shard_not_found_exception"),
    ],
)
def test_passing_failures_are_tried_again(status: int, kind: str) -> None:
    reason = judge(failed(status, kind), 1)
    assert isinstance(reason, str)
    assert str(status) in reason


def test_an_item_that_always_trips_the_server_is_poison_in_the_end() -> None:
    assert isinstance(judge(failed(500, "null_pointer_exception"), POISON_TRIES - 1), str)
    answer = judge(failed(500, "null_pointer_exception"), POISON_TRIES)
    assert not isinstance(answer, str)
    assert answer.outcome is Outcome.REJECTED


@pytest.mark.parametrize(("status", "kind"), [(503, "null_pointer_exception"), (500, "i_o_exception"), (500, "new")])
def test_an_outage_is_never_poison(status: int, kind: str) -> None:
    assert isinstance(judge(failed(status, kind), 10**6), str)


def test_a_rejection_names_type_reason_and_cause() -> None:
    result = failed(400, "document_parsing_exception")
    result["error"]["caused_by"] = {"reason": "For input string"}
    answer = judge(result, 1)
    assert not isinstance(answer, str)
    assert answer.reason == "400 document_parsing_exception: why (For input string)"


def test_a_reason_is_bounded() -> None:
    answer = judge(failed(400, "x", "y" * 100_000), 1)
    assert not isinstance(answer, str)
    assert len(answer.reason or "") < 3000


@pytest.mark.parametrize("kind", ["index_not_found_exception", "index_closed_exception", "security_exception"])
def test_what_no_item_can_pass_is_refused(kind: str) -> None:
    with pytest.raises(SinkRefused):
        judge(failed(404, kind), 1)


def api_error(status: int, body: Any = None) -> ApiError:
    meta = ApiResponseMeta(status, "1.1", HttpHeaders(), 0.0, NodeConfig("http", "h", 1))
    return ApiError(message="m", meta=meta, body=body)


def test_which_request_errors_pass() -> None:
    assert all(is_passing(api_error(status)) for status in (408, 429, 500, 502, 503, 504, 507, 520, 530))
    assert not any(is_passing(api_error(status)) for status in (301, 308, 400, 401, 403, 404, 405, 413, 501, 505))
    assert is_passing(api_error(403, {"error": {"type": "cluster_block_exception"}}))
    assert is_passing(NoConnection("refused"))
    assert is_passing(ConnectionTimeout("slow"))
    assert not is_passing(TlsError("[SSL: CERTIFICATE_VERIFY_FAILED]", errors=(ssl.SSLError(),)))


# --- raw sources ------------------------------------------------------------------------------------------------------


@given(documents=st.lists(st.dictionaries(st.text() | TRICKY, JSON | TRICKY, max_size=5), max_size=5), ids=st.data())
def test_sources_come_out_as_the_text_that_went_in(documents: list[dict[str, Any]], ids: st.DataObject) -> None:
    texts = [json.dumps(document, indent=n % 2 or None).encode() for n, document in enumerate(documents)]
    names = [ids.draw(TRICKY | st.text(max_size=5)) for _ in texts]
    hits = b",".join(
        b'{"_id":%b,"_version":1,"_source":%b,"sort":[%d]}' % (orjson.dumps(name), text, n)
        for n, (name, text) in enumerate(zip(names, texts, strict=True))
    )
    parsed = RawSourceSerializer().loads(b'{"pit_id":"x","hits":{"hits":[%b]}}' % hits)
    assert [hit["_source"] for hit in parsed["hits"]["hits"]] == texts
    assert [hit["_id"] for hit in parsed["hits"]["hits"]] == names
    assert [hit["sort"] for hit in parsed["hits"]["hits"]] == [[n] for n in range(len(texts))]


def test_numbers_keep_their_digits() -> None:
    text = b'{"a":1.10,"b":12345678901234567890.123456789,"c":1E400}'
    envelope, sources = split_sources(b'{"docs":[{"_source":%b,"found":true},{"found":false}]}' % text)
    assert sources == [text]
    assert orjson.loads(envelope) == {"docs": [{"_source": None, "found": True}, {"found": False}]}


@pytest.mark.parametrize("levels", [950, 999, 20_000])
def test_a_source_of_any_depth_comes_out_however_deep_the_callers_are(levels: int) -> None:
    """``verify`` and ``explain`` ended with a RecursionError, by one row."""
    text = b'{"a":%b%b}' % (b"[" * levels, b"]" * levels)

    def read_below(frames: int) -> Any:
        if frames:
            return read_below(frames - 1)
        return RawSourceSerializer().loads(b'{"docs":[{"_id":"1","_source":%b,"found":true}]}' % text)

    assert read_below(100)["docs"] == [{"_id": "1", "_source": text, "found": True}]


def test_a_whole_number_of_thousands_of_digits_is_no_half_answer() -> None:
    """It was taken for one, and asked for again without end: Python reads no number of more than 4,300 digits."""
    text = b'{"a":%b}' % (b"9" * 5_000)
    assert RawSourceSerializer().loads(b'{"docs":[{"_source":%b}]}' % text)["docs"] == [{"_source": text}]


def test_multi_get_with_missing_documents() -> None:
    body = b'{"docs":[{"_id":"1","found":false},{"_id":"2","found":true,"_source":{"a":2}}]}'
    assert RawSourceSerializer().loads(body)["docs"][1]["_source"] == b'{"a":2}'


# --- mappings and settings --------------------------------------------------------------------------------------------


def test_an_override_of_the_same_type_is_merged_and_of_another_type_replaces() -> None:
    default = {
        "a": {"type": "keyword", "ignore_above": 99},
        "b": {"type": "text", "fields": {"keyword": {"type": "keyword"}}},
    }
    merged = mapping.merge(default, {"a": {"type": "geo_point"}, "b": {"analyzer": "english"}, "c": {"type": "long"}})
    assert merged == {
        "a": {"type": "geo_point"},
        "b": {"type": "text", "fields": {"keyword": {"type": "keyword"}}, "analyzer": "english"},
        "c": {"type": "long"},
    }
    assert default["a"] == {"type": "keyword", "ignore_above": 99}, "the default itself is untouched"


def test_an_override_reaches_into_fields_and_objects() -> None:
    default = {
        "t": {"type": "text", "fields": {"keyword": {"type": "keyword"}}},
        "o": {"properties": {"type": {"type": "long"}, "x": {"type": "long"}}},
        "j": {"type": "object", "enabled": False},
    }
    override = {
        "t": {"fields": {"raw": {"type": "keyword"}}},
        "o": {"properties": {"type": {"type": "keyword"}}},
        "j": {"properties": {"a": {"type": "long"}}},
    }
    assert mapping.merge(default, override) == {
        "t": {"type": "text", "fields": {"keyword": {"type": "keyword"}, "raw": {"type": "keyword"}}},
        "o": {"properties": {"type": {"type": "keyword"}, "x": {"type": "long"}}},
        "j": {"properties": {"a": {"type": "long"}}},
    }


def test_settings_in_any_of_the_servers_spellings() -> None:
    flat = {"index.refresh_interval": "5s", "index.analysis.analyzer.mine.type": "custom"}
    analysis = {"analyzer": {"mine": {"type": "custom"}}}
    assert mapping.flatten({"refresh_interval": "5s", "analysis": analysis}) == flat
    assert mapping.flatten({"index": {"refresh_interval": "5s", "analysis": analysis}}) == flat
    assert mapping.flatten({"index.refresh_interval": "5s", "index.analysis": analysis}) == flat


def test_no_ingest_pipeline_runs_unless_the_file_names_one() -> None:
    """A template's, of somebody's, changed each document or dropped it."""
    pipelines = {"index.default_pipeline": "_none", "index.final_pipeline": "_none"}
    assert pipelines.items() <= mapping.index_settings({}).items()
    assert mapping.index_settings({"default_pipeline": "mine"})["index.default_pipeline"] == "mine"


def test_a_document_that_a_pipeline_has_dropped_is_not_written() -> None:
    """It was, says its status: it is nowhere."""
    answer = judge({"status": 200, "result": "noop"}, 1)
    assert not isinstance(answer, str) and "ingest pipeline" in str(answer.reason)
    assert judge({"status": 404, "result": "not_found"}, 1) == WRITTEN


def test_a_number_of_replicas_turns_the_automatic_one_off() -> None:
    assert mapping.index_settings({})["index.auto_expand_replicas"] == "0-1"
    assert mapping.index_settings({"number_of_replicas": 2})["index.auto_expand_replicas"] is False


def test_changed_settings_are_told_by_their_printed_value() -> None:
    actual = {"index.number_of_shards": "1", "index.hidden": "true", "index.sort.field": ["a", "b"]}
    same = {"index.number_of_shards": 1, "index.hidden": True, "index.sort.field": ["a", "b"]}
    assert mapping.changed_settings(same, actual) == {}
    assert mapping.changed_settings({"index.number_of_shards": 2}, actual) == {"index.number_of_shards": 2}


# --- configuration ----------------------------------------------------------------------------------------------------


def config(**over: Any) -> dict[str, Any]:
    return {"type": "elasticsearch", "name": "search", "url": "http://h:9200", "targets": {"flight": {}}} | over


def test_names_of_a_target() -> None:
    target = read_settings(config(targets={"flight": {"index": "flights", "generation": 2}})).targets["flight"]
    assert (target.concrete, target.writer, target.fences, target.fence_writer) == (
        "flights_g2",
        "flights_g2_w0",
        "flights_g2_fences",
        "flights_g2_fences_w0",
    )
    claimed = read_settings(config(token=17)).targets["flight"]
    assert (claimed.writer, claimed.fence_writer) == ("flight_g1_w17", "flight_g1_fences_w17")


@pytest.mark.parametrize(
    ("over", "names"),
    [
        ({"url": "ftp://h"}, "url"),
        ({"url": "http://"}, "url"),
        ({"bulk_bytes": 0}, "bulk_bytes"),
        ({"bulk_bytes": "5mb"}, "bulk_bytes"),
        ({"bulk_workers": True}, "bulk_workers"),
        ({"request_timeout_seconds": -1}, "request_timeout_seconds"),
        ({"settings": []}, "settings"),
        ({"targets": {}}, "no view"),
        ({"targets": {"flight": {"index": "Flights"}}}, "Flights"),
        ({"targets": {"flight": {"index": ".flights"}}}, "flights"),
        ({"targets": {"flight": {"colour": 1}}}, "colour"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_setting_is_named(over: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        read_settings(config(**over))


def test_a_wrong_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(config(password=["hunter2"]))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(read_settings(config(password="hunter2", url="http://u:hunter2@h:1")))


# --- housekeeping -----------------------------------------------------------------------------------------------------


def test_housekeeping_comes_round_alone_and_survives_its_failures(caplog: pytest.LogCaptureFixture) -> None:
    (place,) = read_settings(config()).targets.values()
    now, begun, may_end = [100.0], list[str](), threading.Event()

    def work(target: Target) -> None:
        begun.append(target.view)
        may_end.wait(10)
        raise SinkUnavailable("away")

    keeper = Housekeeping(work, 60.0, lambda: now[0])
    for _ in range(3):
        keeper.look(place)
    now[0] += 61
    keeper.look(place)  # due, but the first is still at it
    may_end.set()
    keeper.join(10)
    assert begun == ["flight"]
    keeper.look(place)
    keeper.join(10)
    keeper.look(place)
    assert begun == ["flight"] * 2
    assert "not forgotten this time: away" in caplog.text


# --- indices ----------------------------------------------------------------------------------------------------------


def test_a_mapping_that_an_index_refuses_names_the_command_that_makes_another_one() -> None:
    """It told to delete the index that readers see."""
    settings = read_settings(config())
    body = {"error": {"type": "illegal_argument_exception", "reason": "mapper [n] cannot be changed"}}
    error = api_error(400, body)

    def refuse(**_: Any) -> None:
        raise BadRequestError(error.message, error.meta, error.body)

    client: Any = SimpleNamespace(indices=SimpleNamespace(put_mapping=refuse))
    (target,) = settings.targets.values()
    with pytest.raises(SinkRefused, match=r"mapper \[n\] cannot be changed") as caught:
        Indices(client, settings, cast(Any, None))._update_mapping(target, "i", {"dynamic": False, "properties": {}})
    assert f"`headwater rebuild FILE {settings.name} --auto`" in str(caught.value)
