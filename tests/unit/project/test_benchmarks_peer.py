"""The pure parts of the pgsync benchmark: what it is told, what is compared, how long is waited, what is pinned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import joins, rebuild
from benchmarks.changes import Changed
from benchmarks.peers import daemon, environment, pgsync, servers
from benchmarks.peers.documents import DOCUMENTS, FLIGHT_CARD, FLIGHT_REFS, PLANE_CARD, same
from benchmarks.peers.measuring import Rate, Settings, wait_until
from benchmarks.peers.pgsync import Build
from cdc.errors import ConfigError, StackError
from deploy.local.endpoints import Endpoints
from deploy.local.site import Site
from examples.flights import load as flights

SCHEMA = flights.SCHEMA.read_text(encoding="utf-8")


def columns(table: str) -> set[str]:
    body = re.search(rf"CREATE TABLE IF NOT EXISTS {table} \((.*?)\n\);", SCHEMA, re.DOTALL)
    assert body is not None
    return set(re.findall(r"^    ([a-z_]+) ", body[1], re.MULTILINE))


def keys(nodes: dict, above: str | None = None) -> Iterator[tuple[str, str, str, str]]:
    """(table above, its column, table, its column) of every relationship in a pgsync schema."""
    if above is not None:
        key = nodes["relationship"]["foreign_key"]
        yield above, key["parent"][0], nodes["table"], key["child"][0]
    for child in nodes.get("children", []):
        yield from keys(child, nodes["table"])


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_relationship_names_columns_that_exist(document) -> None:
    [schema] = document.schema("bench_peer")
    assert (schema["database"], schema["index"]) == ("bench_peer", document.name)
    found = list(keys(schema["nodes"]))
    assert found
    for above, parent, table, child in found:
        assert parent in columns(above) and child in columns(table)


def test_no_label_is_a_column_of_the_flight() -> None:
    # pgsync would join on the label: flights.origin = (the airport as an object).
    assert not {label for label, *_ in FLIGHT_REFS} & columns("flights")


def test_sql_and_schema_make_the_same_fields() -> None:
    for document in DOCUMENTS.values():
        labels = {child["label"] for child in document.nodes["children"]}
        assert set(re.findall(r"'(\w+)',", document.truth)) == labels
    assert set(PLANE_CARD.arrays) <= {child["label"] for child in PLANE_CARD.nodes["children"]}
    assert FLIGHT_CARD.arrays == ()


def test_documents_are_compared_without_the_peers_own_fields_and_arrays_in_any_order() -> None:
    wanted = {"tailnum": "N1", "flights": [{"id": 1}, {"id": 2}]}
    assert same({**wanted, "flights": [{"id": 2}, {"id": 1}], "_meta": {}}, wanted, ("flights",))
    assert not same({**wanted, "flights": [{"id": 2}, {"id": 1}]}, wanted)
    assert not same({**wanted, "flights": [{"id": 1}]}, wanted, ("flights",))
    assert not same({}, wanted)
    assert same({"tailnum": "N1", "flights": None}, {"tailnum": "N1", "flights": None}, ("flights",))
    assert not same({"plane": {"seats": 1}}, {"plane": None})


def test_transactions_cover_every_update_once() -> None:
    assert list(Settings(flights=250, updates=250).transactions()) == [(1, 100), (101, 200), (201, 250)]
    assert list(Settings(flights=30, updates=1000).transactions()) == [(1, 30)]


@pytest.mark.parametrize("name", ["flights", "updates", "transaction", "samples"])
def test_nothing_can_be_measured_on_nothing(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} = 0"):
        Settings(**{name: 0})


def test_rates() -> None:
    assert Rate(documents=1000, seconds=2.0, commit_seconds=0.5).docs_s == 500
    build = Build(documents=1000, bootstrap_s=2.0, first_write_s=1.0, last_write_s=8.0)
    assert (build.docs_s, build.daemon_docs_s) == (100, 125)


def test_waiting_ends_when_it_is_done() -> None:
    looks = iter([False, False, True])
    wait_until(lambda: next(looks), lambda: None, 0, "it")


def test_waiting_ends_with_patience_and_says_what_did_not_come() -> None:
    with pytest.raises(StackError, match="the last document did not come within 0 s"):
        wait_until(lambda: False, lambda: None, 0.001, "the last document", patience=0)


def test_a_keeper_that_ended_is_told_of_before_patience() -> None:
    def check() -> None:
        raise StackError("pgsync ended by itself")

    with pytest.raises(StackError, match="ended by itself"):
        wait_until(lambda: False, check, 0.001, "it", patience=0)


@pytest.fixture
def endpoints() -> Endpoints:
    return Endpoints(
        "127.0.0.1", 1, "postgres", "a:b/c@d", "k", "c", "e", "redis://127.0.0.1:2/0", "redis://127.0.0.1:3/0", "r"
    )


def test_pgsync_gets_its_settings_and_nothing_of_our_environment(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_SOURCE_PASSWORD", "secret")
    monkeypatch.setenv("PG_URL", "postgres://elsewhere")
    found = daemon.variables(endpoints, "http://127.0.0.1:4", tmp_path, daemon.TUNED)
    assert not {"HEADWATER_SOURCE_PASSWORD", "PG_URL"} & set(found)
    assert found["PG_PASSWORD"] == "a:b/c@d"
    assert found["REDIS_URL"] == "redis://127.0.0.1:3/9"
    assert found["ELASTICSEARCH_URL"] == "http://127.0.0.1:4"
    assert found["POLL_TIMEOUT"] == "0.01"
    assert "POLL_TIMEOUT" not in daemon.variables(endpoints, "", tmp_path)


def test_names_are_pgsyncs() -> None:
    assert daemon.internal_name("bench_peer", "flight_card") == "bench_peer_flight_card"
    assert daemon.internal_name("Bench-Peer", "flight.card") == "benchpeer_flightcard"


def test_the_environment_is_pinned_with_digests_and_names_no_host(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    text = environment.LOCK.read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    assert ("pgsync", environment.VERSION) in pins
    assert all(f"{name}=={version} \\\n    --hash=sha256:" in text for name, version in pins)
    assert "://" not in text
    assert dict(pins)["elasticsearch"].startswith("7.17.")  # why the peer has a server of its own
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    before = environment.folder()
    other = tmp_path / "other.lock"
    other.write_text(text + "# another\n")
    monkeypatch.setattr(environment, "LOCK", other)
    assert before.parent == tmp_path
    assert environment.folder() != before


def test_the_peers_elasticsearch_stands_beside_ours(tmp_path: Path) -> None:
    ours = Site(tmp_path, 18000, None)
    place = servers.PeerSite.beside(ours)
    service = servers.PeerElasticsearch()
    assert place.home == ours.home
    assert not {ours.port(name) for name in ("elasticsearch", "elasticsearch-transport")} & {
        place.port(name) for name in service.port_names
    }
    service.prepare(place, {})
    root = place.shared_data(service.name)
    settings = (root / "config" / "elasticsearch.yml").read_text()
    assert "xpack" not in settings
    assert f"http.port: {place.port('elasticsearch')}" in settings
    assert "http.host: 127.0.0.1" in settings
    assert "-Xmx1g" in (root / "config" / "jvm.options").read_text()
    assert root != ours.shared_data("elasticsearch")


def test_the_peers_elasticsearch_is_pinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert re.fullmatch(r"[0-9a-f]{128}", servers.PINNED.sha512)
    assert servers.PINNED.coordinate.version.startswith("7.17.")
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    assert servers.folder().parent == tmp_path


def test_without_a_java_it_runs_on_it_says_which_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("deploy.local.java.candidates", lambda: [])
    with pytest.raises(StackError, match="no Java 17 to 20") as caught:
        _ = servers.PeerSite(tmp_path, 18000, None).jdk
    assert "openjdk-17" in caught.value.fix


class Turns:
    """A run of the comparison in which nothing takes its time: what is done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = list[str]()
        self.index = SimpleNamespace(url="http://x", delete=lambda: None)
        self.process, self.document = SimpleNamespace(pid=1), FLIGHT_CARD
        workload = SimpleNamespace(settings=Settings(), wrong=self._wrong, expected=lambda document: 1)
        monkeypatch.setattr(pgsync, "running", lambda *_, **__: nullcontext(self))
        monkeypatch.setattr(pgsync, "build", self._build)
        for module in (joins, rebuild):
            monkeypatch.setattr(module, "ready", lambda: SimpleNamespace(endpoints=None))
            monkeypatch.setattr(module, "copied", lambda *_: nullcontext(workload))
        monkeypatch.setattr(joins, "theirs_of", lambda *_: None)
        monkeypatch.setattr(joins, "changed", lambda *_: Changed(1, 1, 1, 1, 1, 1))
        monkeypatch.setattr(joins, "_ours", self._ours)
        monkeypatch.setattr(joins, "_build_for_nothing", lambda *_: self.done.append("our build"))
        monkeypatch.setattr(joins, "_from_nothing", lambda *_: 1.0)

    def teardown(self) -> None:
        self.done.append("teardown")

    def stop(self) -> None:
        self.done.append("stop")

    def _build(self, peer: Any, workload: Any) -> Build:
        self.done.append("build")
        return Build(documents=1000, bootstrap_s=1.0, first_write_s=1.0, last_write_s=9.0)

    def _wrong(self, documents: Any, document: Any) -> int:
        self.done.append("compare")
        return 3

    def _ours(self, *_: object, **__: object) -> Any:
        self.done.append("ours")
        return joins.Figures(1, 1, Changed(1, 1, 1, 1, 1, 1)), 1.0, [1.0]


def test_no_build_that_counts_is_on_a_cold_server_and_pgsyncs_documents_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(monkeypatch)
    found = {one.name: one.value for one in joins.measure(flights=1000)}
    ours = ["our build", "ours", "ours"]
    assert turns.done == ["build", "teardown", "build", "teardown", *ours, "build", "compare", "stop"]
    assert found["pgsync_wrong_documents"] == 3
    turns.done.clear()
    joins.measure_million(flights=1000)
    assert turns.done == ["build", "teardown", "build", "teardown", "our build", "ours"]


def test_one_bootstrap_of_pgsync_is_held_against_one_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    fills = {2: rebuild.Filled(1000, 8.0, 20.0, 1.0), 3: rebuild.Filled(1000, 4.0, 5.0, 1.0)}
    run = SimpleNamespace(
        headwater=lambda *_: "",
        rebuilt=lambda number, rows: fills[number],
        rebuilt_anew=lambda number, rows: fills[number],
    )
    stack: Any = SimpleNamespace(endpoints=None)
    Turns(monkeypatch)
    ceilings = iter((500.0, 400.0))
    monkeypatch.setattr(rebuild, "_pipeline", lambda *_: nullcontext(run))
    monkeypatch.setattr(rebuild, "_ceiling", lambda stack: next(ceilings))
    monkeypatch.setattr(rebuild, "_Reader", lambda *_: nullcontext(SimpleNamespace(failed=[], wrong=[], reads=1)))
    monkeypatch.setattr(rebuild.time, "sleep", lambda seconds: None)
    found = {one.name: one for one in rebuild._compared(stack, 1000)}
    assert found["rebuild_vs_bulk_ceiling"].ratio == 250 / 500  # the better of two, on both sides
    assert found["rebuild_vs_pgsync_bootstrap"].ratio == 50 / 100  # the first, on both sides
