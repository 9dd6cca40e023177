"""The pure parts of the warehouse's comparisons: what peers are told and pinned to, what is read of their tables."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest

from benchmarks import lake_peers
from benchmarks.peers import flink, jars, jdbc
from cdc.errors import StackError
from deploy.local.endpoints import Endpoints
from deploy.local.site import Site
from deploy.local.stack import LocalStack
from examples.flights import load as flights
from tests.unit.project.test_benchmarks_peer import columns


@pytest.fixture
def endpoints() -> Endpoints:
    return Endpoints("127.0.0.1", 1, "postgres", "secret", "k", "c", "e", "redis://1", "redis://2", "r")


def test_the_peers_are_pinned_and_no_host_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = jars.LIST.read_text(encoding="utf-8")
    assert "://" not in text
    names = {str(one.coordinate) for unit in ("flink", "jdbc-sink") for one in jars.pinned(unit)}
    assert names >= {
        "org.apache.flink:flink-sql-connector-postgres-cdc:3.5.0",
        "org.apache.iceberg:iceberg-flink-runtime-1.20:1.9.2",
        "io.debezium:debezium-connector-jdbc:3.6.0.Final:tar.gz:plugin",
    }
    assert all(re.fullmatch(r"[0-9a-f]{128}", one.sha512) for one in jars.pinned("flink"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    before = jars.folder("flink")
    other = tmp_path / "other.toml"
    other.write_text(text.replace("postgres-cdc:3.5.0", "postgres-cdc:3.5.1"))
    monkeypatch.setattr(jars, "LIST", other)
    assert before.parent == tmp_path
    assert jars.folder("flink") != before


def test_flink_copies_every_column_of_the_flights() -> None:
    assert set(flink.COLUMNS) == columns("flights")
    order = re.findall(r"^    ([a-z_]+) ", flights.SCHEMA.read_text().split("EXISTS flights (")[1], re.MULTILINE)
    assert list(flink.COLUMNS) == order[: len(flink.COLUMNS)]  # INSERT … SELECT * goes by position


def test_flink_upserts_what_a_slot_of_its_own_gives(endpoints: Endpoints, tmp_path: Path) -> None:
    told = flink._statements(tmp_path, endpoints, "bench_lake_peer")
    assert "'format-version'='2', 'write.upsert.enabled'='true'" in told
    assert "'decoding.plugin.name'='pgoutput'" in told
    assert f"'slot.name'='{flink.SLOT}'" in told
    assert len([one for one in re.split(r";\s*\n", told) if one.strip()]) == 5  # as FlinkPeer.java takes them apart


class Ended:
    """A process."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code


def job(folder: Path, code: int | None = None) -> flink.Flink:
    process: subprocess.Popen[bytes] = Ended(code)  # type: ignore[assignment]
    return flink.Flink(folder, process, 0.0)


def test_rows_are_counted_over_commits_in_their_order(tmp_path: Path) -> None:
    peer = job(tmp_path)
    assert peer.commits() == []
    place = peer.warehouse / "peer/flights/metadata"
    place.mkdir(parents=True)

    def snapshot(number: int, at: int, added: str | None) -> dict[str, object]:
        summary = {"operation": "overwrite"} | ({"added-records": added} if added else {})
        return {"sequence-number": number, "timestamp-ms": at, "summary": summary}

    (place / "v9.metadata.json").write_text(json.dumps({"snapshots": []}))
    snapshots = [snapshot(2, 7_000, "50"), snapshot(1, 2_000, "100"), snapshot(3, 12_000, None)]
    (place / "v10.metadata.json").write_text(json.dumps({"snapshots": snapshots}))
    assert [(one.at, one.written) for one in peer.commits()] == [(2.0, 100), (7.0, 150), (12.0, 150)]
    assert peer.await_written(101, patience=0) == 7.0
    with pytest.raises(StackError, match="151 rows in Flink's table did not come"):
        peer.await_written(151, patience=0)


def test_a_flink_that_has_ended_is_told_of_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "flink.log").write_text("began 1000\nbegan 2500\nout of memory\n")
    assert job(tmp_path).began == 2.5
    with pytest.raises(StackError, match="exit code 3"):
        job(tmp_path, 3).check()


def test_without_a_java_for_flink_it_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.local.java.candidates", lambda: [])
    with pytest.raises(StackError, match="no JDK of version 11 or 17") as caught:
        flink._java()
    assert "openjdk-17" in caught.value.fix


def test_the_jdbc_sink_has_a_worker_of_its_own_beside_ours(tmp_path: Path) -> None:
    ours = Site(tmp_path, 18000, None)
    place = Site(tmp_path, 18000 + jdbc.PORT_OFFSET, None)
    service = jdbc.PeerConnect(ours)
    service.prepare(place, {jdbc.UNIT: tmp_path / "sink"})
    text = (place.data(service.name) / "connect.properties").read_text()
    assert f"bootstrap.servers=127.0.0.1:{ours.port('kafka')}" in text
    assert f"listeners=http://127.0.0.1:{place.port('connect')}" in text
    assert place.port("connect") not in {ours.port(name) for name in ("connect", "registry", "kafka", "postgres")}
    assert f"plugin.path={ours.data('connect') / 'plugins'},{tmp_path / 'sink'}" in text
    assert "group.id=headwater-connect" not in text
    assert "connect-offsets" not in text


def test_the_jdbc_sink_deletes_and_upserts_by_the_key(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, 18000)
    sink = jdbc.JdbcSink(stack, "http://127.0.0.1:1", "a", "b")
    told = sink._sink()
    assert (told["insert.mode"], told["delete.enabled"], told["primary.key.mode"]) == ("upsert", "true", "record_key")
    assert told["topics"] == jdbc.TOPIC
    assert told["value.converter.apicurio.registry.url"].endswith("/apis/registry/v2")
    assert sink._source()["key.converter"] == told["key.converter"]


def test_both_tables_are_asked_the_same() -> None:
    assert all(text.count("{}") == 1 and "count(*)" in text for text in lake_peers.QUESTIONS.values())
    assert lake_peers.OURS != lake_peers.THEIRS


class Asked(lake_peers.Reads):
    """Reads of tables that answer as they are told to: an answer, or an error."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {lake_peers.OURS: answers["ours"], lake_peers.THEIRS: answers["theirs"]}

    def _truth(self, text: str) -> tuple[Any, ...]:
        return (1,)

    def _by(self, engine: str, text: str, duck: object) -> Any:
        return self._told

    def _told(self, table: str) -> tuple[Any, ...]:
        answer = self.answers[table]
        if isinstance(answer, Exception):
            raise answer
        return tuple(answer)


@pytest.mark.parametrize("wrong", [(2,), duckdb.IOException("no such file")], ids=["wrong", "unreadable"])
def test_only_the_peers_wrong_answer_is_left_out(wrong: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Asked(ours=(1,), theirs=(1,))._of("duckdb", "")) == len(lake_peers.QUESTIONS)
    assert Asked(ours=(1,), theirs=wrong)._of("duckdb", "") == []
    assert f"duckdb, scan: no figure, {lake_peers.THEIRS} " in capsys.readouterr().out
    with pytest.raises(StackError, match=r"our table `hw_warehouse`.`peer`.`flights` (answers|can't be read)"):
        Asked(ours=wrong, theirs=(1,))._of("duckdb", "")


def test_reads_that_took_too_long_are_ours_only_if_we_did(monkeypatch: pytest.MonkeyPatch) -> None:
    late = duckdb.InterruptException("interrupted")
    assert Asked(ours=late, theirs=(1,))._of("duckdb", "") == []  # the peer had used up the time
    monkeypatch.setattr(lake_peers, "READ_SECONDS", 0.0)
    with pytest.raises(StackError, match="did not answer within"):
        Asked(ours=late, theirs=(1,))._of("duckdb", "")
