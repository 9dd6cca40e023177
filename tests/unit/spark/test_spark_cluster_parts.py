"""A cluster's parts that need no cluster: URLs, settings, judging an executor's answer, the packed environment."""

from __future__ import annotations

import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.errors import ClusterError, ClusterUnavailable, ConfigError, SinkUnavailable
from cdc.pipeline import Pipeline, load
from cdc.pipeline.rowstore import RowStore
from deploy.local.unpack import unpack_tar
from operations.rowstore import row_store_settings
from operations.run.machines import ALONE, alone, with_master
from sinks.awake import AWAY_SECONDS, Awake
from sinks.contract import UNVERSIONED, Answer, Item, Outcome
from sinks.rowstore.redis import RedisRowStore
from sinks.rowstore.settings import StoreSettings
from spark import write
from spark.disk.state import Generation
from spark.machine import cluster
from spark.machine.packing import pack, packages
from spark.reading.entries import Decoded, Entry
from spark.reading.spec import FlowSpec

FILE = """
version: 1
name: shop
source: {host: db, database: shop, user: u, password: p, setup_user: o, setup_password: p, tables: [public.t]}
kafka: {bootstrap: "k:9092"}
connect: {url: "http://c:8083"}
views: {t: {root: t}}
sinks: {search: {type: elasticsearch, url: "http://e:9200", view: t}}
engine: {master: MASTER}
"""


def _pipeline(folder: Path, master: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(FILE.replace("MASTER", f'"{master}"'))
    return load(path, {})


def test_a_master_may_have_stand_bys() -> None:
    assert cluster.masters("spark://a:7077,b:7078") == [("a", 7077), ("b", 7078)]
    assert cluster.masters("yarn") == []
    assert cluster.is_local("local[4]") and not cluster.is_local("k8s://https://x")


def test_executors_call_the_driver_back_where_it_reaches_the_master() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        found = cluster.settings(f"spark://127.0.0.1:1,127.0.0.1:{port}", "", "-Xss4m")
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.speculation"] == "false" and found["spark.executor.extraJavaOptions"] == "-Xss4m"
    with pytest.raises(ClusterUnavailable, match=r"does not answer at 127\.0\.0\.1:1"):
        cluster.settings("spark://127.0.0.1:1", "", "")


def test_an_archive_is_sent_and_its_python_used(tmp_path: Path) -> None:
    archive = tmp_path / "python.tar.gz"
    archive.write_bytes(b"")
    found = cluster.settings("yarn", str(archive), "")
    assert found["spark.archives"] == f"file://{archive}#headwater-env"
    assert found["spark.pyspark.python"] == "./headwater-env/bin/python"
    assert "spark.driver.host" not in found
    with pytest.raises(ConfigError, match="headwater pack"):
        cluster.settings("yarn", str(tmp_path / "none.tar.gz"), "")


def test_an_executor_that_lacks_something_is_refused(tmp_path: Path) -> None:
    answer = {"host": "w1", "place": "/opt/x", "python": "3.11.2", "code": cluster.fingerprint(), "lacks": ""}
    cluster._judge(answer, {})
    with pytest.raises(ClusterError, match=r"another Headwater \(in /opt/x\)"):
        cluster._judge({**answer, "code": "0"}, {})
    with pytest.raises(ClusterError, match=r"have no readable /ca\.pem"):
        cluster._judge({**answer, "lacks": "/ca.pem"}, {})
    with pytest.raises(ClusterError, match="do not see /warehouse as this process does"):
        cluster._judge({**answer, "lacks": "/warehouse/.mark"}, {"/warehouse/.mark": Path("/warehouse")})
    with cluster._marked([tmp_path / "new"]) as marks:
        assert [Path(path).exists() for path in marks] == [True]
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.sampled
def test_the_packed_environment_has_what_executors_import_and_no_jars(tmp_path: Path) -> None:
    archive, again = tmp_path / "python.tar.gz", tmp_path / "again.tar.gz"
    pack(archive)
    pack(again)
    assert archive.read_bytes() == again.read_bytes()
    with tarfile.open(archive) as opened:
        names = opened.getnames()
        unpack_tar(opened, tmp_path / "env")
    assert "lib/spark/machine/worker_daemon.py" in names and "lib/pyspark/daemon.py" in names
    assert not [
        name for name in names if name.endswith(".jar") or "/pytest/" in name or name.startswith("lib/console/")
    ]
    found = {one.metadata["Name"].lower() for one in packages()}
    assert {"pyarrow", "pandas", "fastavro", "hiredis", "authlib"} <= found  # the last two are others' extras
    assert not {"pytest", "mypy", "duckdb", "testcontainers"} & found
    code = "import spark.write, spark.join.later, sinks.redis; print(spark.write.__file__)"
    python = str(tmp_path / "env" / "bin" / "python")
    environment = {"PATH": str(Path(sys.executable).resolve().parent) + ":/usr/bin:/bin"}
    environment["HEADWATER_PYTHON"] = str(Path(sys.executable).resolve())
    done = subprocess.run(
        [python, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str(tmp_path / "env" / "lib" / "spark" / "write.py"), done.stderr
    with pytest.raises(ConfigError, match=r"\.tar\.gz"):
        pack(tmp_path / "python.zip")


def test_verify_and_explain_do_not_take_a_clusters_cores(tmp_path: Path) -> None:
    pipeline = _pipeline(tmp_path, "spark://a:7077")
    assert alone(pipeline, None).engine.master == ALONE
    assert alone(pipeline, "yarn").engine.master == "yarn"
    assert alone(_pipeline(tmp_path, "local[3]"), None).engine.master == "local[3]"
    assert with_master(pipeline, None) is pipeline
    with pytest.raises(ConfigError, match="--master mesos://x"):
        with_master(pipeline, "mesos://x")


def test_a_worker_that_was_away_does_not_go_on() -> None:
    now = [0.0]
    awake = Awake(40.0, lambda: now[0])
    now[0] = 100.0
    awake.check()  # no task has begun
    awake.begin()
    for _ in range(3):
        now[0] += 39.0
        awake.check()
    now[0] += 41.0
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="away for 41 s"):
            awake.check()
    now[0] += 1000.0
    awake.begin()  # the next task of the same worker
    awake.check()
    unwatched = Awake(0.0, lambda: now[0])
    unwatched.begin()
    now[0] += 1000.0
    unwatched.check()


def test_the_row_store_looks_at_the_clock_before_each_call(tmp_path: Path) -> None:
    now = [0.0]
    nowhere = StoreSettings("redis://127.0.0.1:1/0", "n:", "t", away_seconds=40.0, give_up_seconds=0.1)
    store = RedisRowStore(nowhere)
    store.awake = Awake(40.0, lambda: now[0])
    store.awake.begin()
    now[0] = 41.0
    with pytest.raises(SinkUnavailable, match="was away for 41 s"):
        store.get(["r0:1"])
    generation = Generation(tmp_path, "shop", "search")
    for master, seconds in (("local[2]", 0.0), ("spark://a:1", AWAY_SECONDS)):
        pipeline = _pipeline(tmp_path, master)
        pipeline = pipeline.model_copy(update={"row_store": RowStore(url="redis://r:1/0")})
        assert row_store_settings(pipeline, generation, "t")["away_seconds"] == seconds


def test_a_worker_that_was_away_writes_nothing_for_its_old_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has done it, and what came after it: a delete that bears no version would remove a row of today."""
    now, calls = [0.0], list[str]()

    class Sink:
        def write(self, view: str, items: list[Item]) -> list[Answer]:
            calls.append(view)
            return [Answer(Outcome.WRITTEN)] * len(items)

    def decoded() -> Iterator[Decoded]:
        yield Decoded([Entry("v", "1", UNVERSIONED, None, "t", 0, 1, 0)], [], 1, 0)
        now[0] += 41.0
        yield Decoded([Entry("v", "2", UNVERSIONED, None, "t", 0, 2, 0)], [], 1, 0)

    monkeypatch.setattr(write, "_sink", lambda _packed: Sink())
    monkeypatch.setattr(write, "Awake", lambda limit: Awake(limit, lambda: now[0]))
    letters = {"topic": "d", "client": {}}
    spec = FlowSpec("cache", {}, {}, {}, {}, letters, away_seconds=AWAY_SECONDS)
    with pytest.raises(SinkUnavailable, match="was away for 41 s"):
        list(write.apply_decoded(spec.pack(), decoded()))
    assert len(calls) <= 1
    now[0], calls[:] = 0.0, []
    local = replace(spec, away_seconds=0.0)
    list(write.apply_decoded(local.pack(), decoded()))
    assert calls == ["v", "v"]
