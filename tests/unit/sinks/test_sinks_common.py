"""What sinks share: patience, dead letters, the factory, the warehouse's addresses."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from cdc.catalogue import Column, Table
from cdc.errors import ConfigError, DecodeError, SinkUnavailable
from cdc.letters import deadletter as deadletters
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import ElasticsearchSink, RedisSink
from cdc.pipeline.sinks import SINKS
from cdc.view import View
from sinks import contract, redis
from sinks.configure import check_mapping, merged, plain_config, sink_config
from sinks.contract import MAX_VERSION, UNVERSIONED, Item, Sink, size_fault, version_fault
from sinks.elasticsearch import ElasticsearchSink as OpenedElasticsearch
from sinks.elasticsearch.settings import INDEX_NAME, Target, read_settings
from sinks.factory import open_sink
from sinks.fields import MAX_TOKEN
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg import storage
from sinks.iceberg.target import IcebergTarget
from sinks.retry import CAP_SECONDS, Patience


class Clock:
    """Time that passes only when told; stands in for the stop event too, so that waiting advances it."""

    def __init__(self) -> None:
        self.now, self.pauses, self.stopped = 0.0, list[float](), False

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return self.stopped

    def is_set(self) -> bool:
        return self.stopped


def patience(clock: Clock, give_up: float | None, said: list[str] | None = None) -> Patience:
    say: Callable[[str], None] = (said if said is not None else []).append
    return Patience("it", give_up_seconds=give_up, on_wait=say, stop=clock, clock=clock)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "contract"),
    [(OpenedElasticsearch, Sink), (redis.RedisSink, Sink), (IcebergTarget, contract.Target)],
    ids=lambda one: one.__name__,
)
def test_a_target_has_every_method_of_the_contract_with_the_same_arguments(kind: type, contract: type) -> None:
    named = [name for name in dir(contract) if not name.startswith("_")]
    assert {"oldest_claim", "claimed", "living"} <= {*named}
    for name in named:
        asked, given = (inspect.signature(getattr(of, name)).parameters for of in (contract, kind))
        assert [*given] == [*asked], name


def test_patience_grows_to_a_cap_and_never_gives_up_without_a_bound() -> None:
    clock, said = Clock(), list[str]()
    waiting = patience(clock, None, said)
    for _ in range(300):
        waiting.hold("down")
    assert max(clock.pauses) <= CAP_SECONDS
    assert max(clock.pauses[:3]) <= 0.2
    assert sum(clock.pauses[100:]) / 200 > 1, "a server that is down for long is not asked all the time"
    assert said == ["down"] * 300


def test_patience_ends_at_its_bound_and_not_before() -> None:
    clock = Clock()
    waiting = patience(clock, 30.0)
    with pytest.raises(SinkUnavailable, match="it is not available: down"):
        for _ in range(10_000):
            waiting.hold("down")
    assert 30.0 <= clock.now < 31.0


def test_progress_starts_the_bound_afresh() -> None:
    clock = Clock()
    waiting = patience(clock, 5.0)
    for _ in range(100):
        waiting.hold("slow")
        waiting.progress()
    assert clock.pauses[-1] <= 0.05


def test_a_closed_sink_waits_no_more() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(SinkUnavailable, match="closed"):
        Patience("it", stop=stop).hold("down")


def test_who_does_not_answer_is_named_once_and_a_servers_own_words_end_as_ours_do() -> None:
    with pytest.raises(SinkUnavailable) as raised:
        Patience("it", give_up_seconds=0.0).hold("it: 403 index blocked by: [FORBIDDEN/8/index write (api)];")
    assert raised.value.what == "it is not available: 403 index blocked by: [FORBIDDEN/8/index write (api)]"


@pytest.mark.parametrize("version", [0, 1, MAX_VERSION])
def test_versions_in_bounds(version: int) -> None:
    assert version_fault(Item("1", version, b"{}")) is None
    assert version_fault(Item("1", version, None)) is None


def test_versions_out_of_bounds() -> None:
    assert version_fault(Item("1", UNVERSIONED, None)) is None
    for wrong in (Item("1", UNVERSIONED, b"{}"), Item("1", -2, None), Item("1", MAX_VERSION + 1, None)):
        assert version_fault(wrong)


def test_too_large_a_document_is_told_by_its_limit_and_by_no_key_that_the_pipeline_file_lacks() -> None:
    assert size_fault(Item("1", 1, b"1234"), 4) is None and size_fault(Item("1", 1, None), 0) is None
    assert size_fault(Item("1", 1, b"12345"), 4) == "the document has 5 bytes, this sink takes at most 4"


# --- dead letters -----------------------------------------------------------------------------------------------------

LETTERS = st.builds(
    DeadLetter,
    sink=st.text(),
    view=st.text(),
    key=st.text(),
    version=st.integers(-1, MAX_VERSION),
    reason=st.text(max_size=50),
    document=st.none() | st.binary(max_size=50) | st.text().map(str.encode),
    topic=st.none() | st.text(),
    partition=st.none() | st.integers(0, 100),
    offset=st.none() | st.integers(0, 2**62),
    at_ms=st.integers(0, 2**42),
)


@given(letter=LETTERS)
def test_a_letter_survives_its_json(letter: DeadLetter) -> None:
    assert DeadLetter.from_json(letter.to_json()) == letter


def test_a_letter_is_readable_json() -> None:
    letter = DeadLetter("search", "flight", "1", 5, "mapper", b'{"n":1}', "t", 0, 7, 99)
    assert json.loads(letter.to_json())["document"] == '{"n":1}'


def test_a_large_letter_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadletters, "MAX_DOCUMENT_BYTES", 100)
    document = ("ü" * 150).encode()
    letter = DeadLetter("s", "v", "k", 1, "r" * 10_000, document)
    data = letter.to_json()
    assert len(data) < 6000
    again = DeadLetter.from_json(data)
    assert again.document_bytes == 300
    assert again.document == document[:100]
    assert len(json.loads(data)["document_sha256"]) == 64
    assert DeadLetter.from_json(again.to_json()) == again


def test_record_keys_keep_letters_apart() -> None:
    def letter(sink: str, view: str, key: str, offset: int = 0) -> bytes:
        return DeadLetter(sink, view, key, 1, "r", topic="t", partition=0, offset=offset).record_key()

    assert letter("s", "v", "k", 1) == letter("s", "v", "k", 2) == b"s|v|k"
    assert letter("s", "v", "a|b") != letter("s", "v|a", "b")
    assert letter("s", "", "", 1) != letter("s", "", "", 2)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b'{"sink":1}', b"\xff", b'{"document":5}'])
def test_what_is_no_letter_is_named(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not a dead letter"):
        DeadLetter.from_json(data)


# --- factory ----------------------------------------------------------------------------------------------------------


def column(name: str, kind: str, ordinal: int) -> Column:
    return Column(name, kind, kind, None, None, False, True, None, ordinal)


TABLE = Table("public", "flights", (column("id", "bigint", 1), column("origin", "text", 2)), ("id",), "default")
VIEW = View("flight", TABLE, ("id",), (("id", "id"), ("origin", "from")), {"late": "true"})


def elasticsearch(**over: Any) -> ElasticsearchSink:
    return ElasticsearchSink.model_validate({"type": "elasticsearch", "url": "http://h:9200", "view": "flight"} | over)


def test_a_sinks_settings_as_plain_data() -> None:
    sink = elasticsearch(index="flights", mapping={"from": {"type": "keyword"}}, bulk_bytes=1 << 20, password="p")
    config = sink_config("search", sink, [VIEW], {"flight": {"late": "boolean"}}, 3)
    assert json.loads(json.dumps(config)) == config
    assert config["password"] == "p"
    assert config["bulk_bytes"] == 1 << 20
    assert "api_key" not in config
    target = config["targets"]["flight"]
    assert (target["index"], target["generation"]) == ("flights", 3)
    assert target["properties"]["id"] == {"type": "long"}
    assert target["properties"]["from"] == {"type": "keyword"}
    assert target["properties"]["late"] == {"type": "boolean"}
    open_sink(config).close()


@pytest.mark.parametrize("kind", ["elasticsearch", "opensearch"])
def test_an_index_prefix_stands_before_all_that_a_search_sink_names(kind: str) -> None:
    """With a mapping and without, so that what drops, promotes and looks finds what was written."""
    said = {"type": kind, "url": "http://h:9200", "tables": "all", "index_prefix": "shop-"}
    sink = SINKS[kind].model_validate(said)
    whole = read_settings(sink_config("search", sink, [VIEW], {}, 2, 7)).targets["flight"]
    assert (whole.index, whole.concrete, whole.writer) == ("shop-flight", "shop-flight_g2", "shop-flight_g2_w7")
    assert (whole.fences, whole.fence_writer) == ("shop-flight_g2_fences", "shop-flight_g2_fences_w7")
    assert (whole.queries, whole.percolator) == ("shop-flight_queries", "shop-flight_g2_percolator")
    pipeline: Any = SimpleNamespace(name="shop", sinks={"search": sink})
    bare = read_settings(plain_config(pipeline, "search", 2, ["flight", "_Planes"])).targets
    assert (bare["flight"].concrete, bare["_Planes"].index) == (whole.concrete, "shop-_planes")


def test_the_longest_index_prefix_leaves_room_for_every_suffix() -> None:
    """The server's limit is 255 bytes."""
    sink = elasticsearch(view=None, tables="all", index_prefix="p" * 100)
    name = sink.index_of("t" * 63)
    target = Target("t", name, 10**6, {}, MAX_TOKEN)
    assert INDEX_NAME.fullmatch(name)
    assert max(len(one) for one in (target.fence_writer, target.percolator, target.queries)) <= 255
    with pytest.raises(ValueError, match="index_prefix"):
        elasticsearch(index_prefix="p" * 101)


def test_redis_settings_as_plain_data() -> None:
    sink = RedisSink.model_validate({"type": "redis", "url": "redis://h", "view": "flight", "key_prefix": "p:"})
    config = sink_config("cache", sink, [VIEW], {}, 2, 1_795_236_777)
    assert config["targets"] == {"flight": {"generation": 2}}
    assert config["token"] == 1_795_236_777
    assert config["key_prefix"] == "p:"
    open_sink(config).close()


def test_one_index_for_two_views_is_an_error() -> None:
    with pytest.raises(ConfigError, match="names one index"):
        sink_config("search", elasticsearch(index="flights"), [VIEW, View.identity(TABLE)], {})


def test_a_mapping_for_no_field_is_named_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="'form'") as caught:
        check_mapping("search", elasticsearch(mapping={"form": {"type": "keyword"}}), [VIEW])
    assert "did you mean 'from'?" in str(caught.value)
    assert "if its column has gone, take 'form' out of `mapping:`" in str(caught.value)


def test_a_mapping_may_name_copies_aliases_and_computed_fields() -> None:
    mapping = {"from": {"copy_to": "all"}, "all": {"type": "text"}, "o": {"type": "alias", "path": "from"}, "late": {}}
    check_mapping("search", elasticsearch(mapping=mapping), [VIEW])


def test_a_generation_goes_on_when_a_field_that_its_mapping_names_has_gone() -> None:
    """A column was renamed at the source: all flows of the sink stood, of other tables too."""
    sink = elasticsearch(mapping={"form": {"type": "keyword"}})
    check_mapping("search", sink, [VIEW], goes_on=True)
    taken = replace(VIEW, columns=(*VIEW.columns, ("x", "_id")))
    with pytest.raises(ConfigError, match="no index can have a field '_id'"):
        check_mapping("search", sink, [taken], goes_on=True)


@pytest.mark.parametrize("taken", ["_id", "_source", "_doc_count", "a..b", ".a", " "])
def test_a_column_under_a_name_that_no_index_can_have_is_found_before_one_is_made(taken: str) -> None:
    renamed = tuple((column, taken if at == 0 else out) for at, (column, out) in enumerate(VIEW.columns))
    with pytest.raises(ConfigError) as caught:
        check_mapping("search", elasticsearch(), [replace(VIEW, columns=renamed)])
    assert repr(taken) in caught.value.what and VIEW.name in caught.value.what
    assert f"{{{VIEW.columns[0][0]}: a_name}}" in caught.value.fix
    for free in ("_name", "a.b", "a.", "größe", "id_"):
        allowed = tuple((column, free if at == 0 else out) for at, (column, out) in enumerate(VIEW.columns))
        check_mapping("search", elasticsearch(), [replace(VIEW, columns=allowed)])


def test_a_mapping_for_a_field_of_another_view_of_the_sink_is_left_out() -> None:
    assert merged({"a": {"type": "long"}}, {"b": {"analyzer": "x"}, "c": {"type": "text"}}) == {
        "a": {"type": "long"},
        "c": {"type": "text"},
    }


@pytest.mark.parametrize("kind", ["iceberg", "nope", None])
def test_an_unknown_type_is_an_error(kind: str | None) -> None:
    with pytest.raises(ConfigError):
        open_sink({"type": kind, "name": "x"})


# --- the warehouse ----------------------------------------------------------------------------------------------------


def lake(uri: str, warehouse: str = "w") -> Any:
    return SimpleNamespace(catalog_uri=uri, warehouse=warehouse, namespace="n")


@pytest.mark.parametrize("spelling", ["{}", "sqlite:{}", "jdbc:sqlite:{}", "sqlite:///{}", "file:{}", "file://{}"])
def test_a_sqlite_catalogue_in_any_spelling(tmp_path: Path, spelling: str) -> None:
    place = tmp_path / "deep" / "catalog.db"
    sink = lake(spelling.format(place), str(tmp_path / "w"))
    spark = iceberg.spark_properties(sink)
    assert spark["uri"] == f"jdbc:sqlite:{place}"
    assert spark["warehouse"] == str(tmp_path / "w")
    assert place.parent.is_dir(), "SQLite makes no folders"
    assert iceberg.pyiceberg_properties(sink)["uri"].startswith(f"sqlite:///{place}?")


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert iceberg.spark_properties(lake("lake/c.db", "lake"))["uri"] == f"jdbc:sqlite:{tmp_path}/lake/c.db"
    assert storage.location("lake") == f"{tmp_path}/lake"
    assert storage.location("file:///a/b") == storage.location("file:/a/b") == "/a/b"
    assert storage.location("s3://bucket/lake/") == "s3://bucket/lake"


@pytest.mark.parametrize(
    "uri",
    [
        "jdbc:postgresql://h:5433/cat?user=me&password=a%40b",
        "postgresql://me:a%40b@h:5433/cat",
        SecretStr("postgresql://me:a%40b@h:5433/cat"),
    ],
    ids=["jdbc", "url", "secret"],
)
def test_a_postgres_catalogue_keeps_the_password_out_of_the_address(uri: Any) -> None:
    spark = iceberg.spark_properties(lake(uri, "/w"))
    assert spark["uri"] == "jdbc:postgresql://h:5433/cat"
    assert (spark["jdbc.user"], spark["jdbc.password"]) == ("me", "a@b")
    assert iceberg.pyiceberg_properties(lake(uri))["uri"].startswith("postgresql+psycopg://me:a%40b@h:5433/cat?")


def test_an_unknown_catalogue_is_named() -> None:
    with pytest.raises(ConfigError, match="mysql"):
        iceberg.spark_properties(lake("jdbc:mysql://h/db"))


@pytest.mark.parametrize("name", ["a-b", "1a", "a.b", "", "a b"])
def test_a_name_that_needs_quotes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        iceberg.table_name(lake("c.db"), name)
