"""The local stack on real servers: started, killed, healed and stopped, in a home and on ports of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
import requests
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from cdc.errors import StackError
from deploy.local import java, keeper
from deploy.local.process import Record, record
from deploy.local.stack import LocalStack, ServiceState
from tests.support.local import archive

pytestmark = pytest.mark.stack
BASE = 25000
WARM_SECONDS, RSS_MIB = 45, 4096  # what the project promises


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home below pytest's 0700 folder: as root, Postgres and Elasticsearch must find a way round it."""
    path = tmp_path_factory.mktemp("stack") / "home"
    path.mkdir(mode=0o755)
    # What lets Spark start faster is as good here, and `up` would take its time to make it again.
    (path / archive().name).symlink_to(archive().resolve())
    yield path
    stack = LocalStack(path, BASE)
    stack.down()
    stack.wipe()


@pytest.fixture
def stack(home: Path) -> LocalStack:
    """The stack, in whatever state the test before left it."""
    return LocalStack(home, BASE)


@pytest.fixture
def full(stack: LocalStack) -> LocalStack:
    """Every server up."""
    stack.up()
    return stack


def pids(stack: LocalStack) -> dict[str, int | None]:
    return {state.name: state.pid for state in stack.ps()}


def state_of(stack: LocalStack, name: str) -> ServiceState:
    return next(state for state in stack.ps() if state.name == name)


def eventually(check: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def connect_postgres(stack: LocalStack) -> psycopg.Connection[tuple[object, ...]]:
    ends = stack.endpoints
    return psycopg.connect(
        host=ends.postgres_host,
        port=ends.postgres_port,
        user=ends.postgres_superuser,
        password=ends.postgres_password,
        dbname="postgres",
        autocommit=True,
    )


def headwater(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HEADWATER_HOME": str(home), "HEADWATER_PORT_BASE": str(BASE)}
    argv = [sys.executable, "-m", "console.cli", *arguments]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_up_twice_changes_nothing(full: LocalStack) -> None:
    before = pids(full)
    assert all(before.values())
    assert set(full.up().values()) == {0.0}
    assert pids(full) == before
    assert {state.state for state in full.ps()} == {"running"}


@pytest.mark.alone
def test_warm_start_and_memory_keep_the_promise(
    full: LocalStack, record_property: Callable[[str, object], None]
) -> None:
    full.down()
    assert {state.state for state in full.ps()} == {"stopped"}
    began = time.monotonic()
    full.up()
    seconds = time.monotonic() - began
    rss = sum(state.rss_mib for state in full.ps())
    record_property("stack_up_warm_s", seconds)
    record_property("stack_rss_mib", rss)
    print(f"stack_up_warm_s={seconds:.1f} stack_rss_mib={rss:.0f}")
    assert seconds <= WARM_SECONDS
    assert 500 < rss <= RSS_MIB


def test_nothing_listens_outside_of_loopback(full: LocalStack) -> None:
    family = {child.pid for pid in pids(full).values() for child in psutil.Process(pid).children(recursive=True)}
    ours = family | set(pids(full).values())
    listening = [
        c.laddr for c in psutil.net_connections("inet") if c.pid in ours and c.status == psutil.CONN_LISTEN and c.laddr
    ]
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert (
        len({address.port for address in listening}) >= 8
    )  # six servers, Kafka's controller, Elasticsearch's transport
    assert all(BASE <= address.port < BASE + 1000 for address in listening)


def test_postgres_is_ready_for_logical_decoding(full: LocalStack) -> None:
    with connect_postgres(full) as connection:
        row = connection.execute(
            "select current_setting('wal_level'), current_setting('max_replication_slots')::int,"
            " current_setting('max_slot_wal_keep_size'), current_setting('password_encryption')"
        ).fetchone()
        assert row == ("logical", 20, "8GB", "scram-sha-256")
        connection.execute("create extension if not exists citext")
        connection.execute("create extension if not exists hstore")
        connection.execute("select pg_create_logical_replication_slot('stack_probe', 'pgoutput')")
        connection.execute("select pg_drop_replication_slot('stack_probe')")


def test_postgres_wants_the_password_and_nobody_shows_it(full: LocalStack, home: Path) -> None:
    ends = full.endpoints
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(
            host=ends.postgres_host, port=ends.postgres_port, user="postgres", password="x", dbname="postgres"
        )
    assert ends.postgres_password not in repr(ends)
    secret = home / "secrets" / "postgres"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert ends.postgres_password not in headwater(home, "ps").stdout + headwater(home, "ps", "--json").stdout
    assert f"HEADWATER_POSTGRES_PASSWORD={ends.postgres_password}" in headwater(home, "ps", "--env").stdout
    for log in (home / "logs").iterdir():
        assert ends.postgres_password not in log.read_text(errors="replace")


def test_the_other_servers_are_configured_as_the_pipeline_needs_them(full: LocalStack) -> None:
    ends = full.endpoints
    for url, policy, append in [
        (ends.redis_cache_url, "allkeys-lru", "no"),
        (ends.redis_store_url, "noeviction", "yes"),
    ]:
        with redis.Redis.from_url(url) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": policy}
            assert client.config_get("appendonly") == {"appendonly": append}
    admin = AdminClient({"bootstrap.servers": ends.kafka, "log_level": 0})
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    config = admin.describe_configs([broker])[broker].result(10)
    assert config["auto.create.topics.enable"].value == "false"
    assert config["message.max.bytes"].value == str(10 * 2**20)
    plugins = requests.get(f"{ends.connect_url}/connector-plugins", timeout=5).json()
    # Debezium's, and ours above it, which has its version.
    assert [p["version"] for p in plugins if p["class"].endswith("PostgresConnector")] == ["3.7.0.Final"] * 2
    nodes = requests.get(f"{ends.elasticsearch_url}/_nodes/jvm", timeout=5).json()["nodes"].values()
    assert [node["jvm"]["mem"]["heap_max_in_bytes"] <= 2**30 for node in nodes] == [True]


@pytest.mark.sampled
def test_data_survive_kill_9_of_everything(full: LocalStack) -> None:
    ends = full.endpoints
    with connect_postgres(full) as connection:
        connection.execute("create table if not exists survives (id int primary key)")
        connection.execute("insert into survives values (1) on conflict do nothing")
    admin = AdminClient({"bootstrap.servers": ends.kafka, "log_level": 0})
    if "survives" not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic("survives", 1, 1)])["survives"].result(20)
    producer = Producer({"bootstrap.servers": ends.kafka, "acks": "all", "log_level": 0})
    producer.produce("survives", b"v")
    assert producer.flush(20) == 0
    with redis.Redis.from_url(ends.redis_store_url) as client:
        client.set("survives", 1)
    requests.put(f"{ends.elasticsearch_url}/survives/_doc/1", json={"a": 1}, timeout=20).raise_for_status()
    time.sleep(1.2)  # the store's log is flushed each second
    before = pids(full)
    for name in before:
        full.kill(name)
    # Children may keep a port for a while after their parent was killed: it is for `up` to end them.
    assert eventually(lambda: not {state.state for state in full.ps()} & {"running", "unhealthy"}, 30)

    seconds = full.up()

    assert all(seconds.values())
    assert not set(before.values()) & set(pids(full).values())
    assert {state.state for state in full.ps()} == {"running"}
    with connect_postgres(full) as connection:
        assert connection.execute("select count(*) from survives").fetchone() == (1,)
    assert "survives" in AdminClient({"bootstrap.servers": ends.kafka, "log_level": 0}).list_topics(timeout=10).topics
    with redis.Redis.from_url(ends.redis_store_url) as client:
        assert client.get("survives") == b"1"
    assert requests.get(f"{ends.elasticsearch_url}/survives/_doc/1", timeout=5).json()["found"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["postgres", "kafka"])
def test_one_killed_server_is_healed_and_the_others_are_left_alone(full: LocalStack, name: str) -> None:
    before = pids(full)
    full.kill(name)
    full.up()
    after = pids(full)
    assert after.pop(name) != before.pop(name)
    changed = {other for other in after if after[other] != before[other]}
    assert changed <= {"connect"}  # which may have been restarted with its Kafka
    assert {state.state for state in full.ps()} == {"running"}


def test_stale_postmaster_pid_with_a_living_pid_does_not_block(stack: LocalStack, home: Path) -> None:
    stack.up(["postgres"])
    stack.kill("postgres")
    stale = home / "data" / "postgres" / "cluster" / "postmaster.pid"
    assert eventually(lambda: not _postgres_left(stale.parent))
    account = stack.site.account
    with subprocess.Popen(["sleep", "60"], user=account.uid if account else None) as bystander:
        try:
            lines = stale.read_text().splitlines()
            stale.write_text("\n".join([str(bystander.pid), *lines[1:]]) + "\n")  # the pid is in use again, same user
            stack.up(["postgres"])
        finally:
            bystander.kill()
    assert state_of(stack, "postgres").state == "running"


def _postgres_left(cluster: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == cluster.resolve():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_server_that_hangs_is_started_anew(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.up(["redis-cache"])
    before = state_of(stack, "redis-cache").pid
    monkeypatch.setattr(keeper, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr("deploy.local.services.redis.RedisCache.stop_seconds", 0.5)
    stack.kill("redis-cache", signal.SIGSTOP)
    assert state_of(stack, "redis-cache").state == "unhealthy"
    lines: list[str] = []
    stack.up(["redis-cache"], lines.append)
    assert any("does not serve" in line for line in lines)
    assert state_of(stack, "redis-cache").state == "running"
    assert state_of(stack, "redis-cache").pid != before


@pytest.mark.sampled
def test_the_registry_keeps_its_schemas_and_listens_on_loopback_only(stack: LocalStack) -> None:
    schema = {"schema": '{"type":"record","name":"r","fields":[{"name":"x","type":"int"}]}'}
    try:
        assert set(stack.up(["redis-cache"], more=["registry"])) == {"redis-cache", "registry"}
        url = stack.endpoints.registry_url
        made = requests.post(f"{url}/subjects/s-value/versions", json=schema, timeout=20).json()["id"]
        server = psutil.Process(pids(stack)["registry"])
        listeners = [c.laddr for c in server.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert {address.ip.removeprefix("::ffff:") for address in listeners} == {"127.0.0.1"}
        assert len(listeners) == 2  # the API and the management port
        stack.kill("registry")
        stack.up(["registry"])
        found = requests.get(f"{url}/schemas/ids/{made}", timeout=20).json()["schema"]
        assert json.loads(found) == json.loads(schema["schema"])
    finally:
        stack.down(["registry"])
        stack.wipe(["registry"])


def test_only_starts_what_is_named_and_what_that_needs(stack: LocalStack) -> None:
    stack.down()
    assert list(stack.up(["redis-store"])) == ["redis-store"]
    assert [state.name for state in stack.ps() if state.state == "running"] == ["redis-store"]
    with pytest.raises(StackError, match="no server 'mysql'"):
        stack.up(["mysql"])


def test_down_only_stops_only_that(stack: LocalStack) -> None:
    stack.up(["redis-store", "redis-cache"])
    assert stack.down(["redis-cache"]) == ["redis-cache"]
    assert state_of(stack, "redis-store").state == "running"
    assert stack.down(["redis-cache"]) == []


def test_foreign_port_is_named_with_its_owner_and_left_alone(stack: LocalStack) -> None:
    stack.down(["redis-cache"])
    with socket.create_server(("127.0.0.1", BASE + 379)):
        state = state_of(stack, "redis-cache")
        assert (state.state, state.pid) == ("foreign", None)
        with pytest.raises(StackError) as caught:
            stack.up(["redis-cache", "redis-store"])
        assert str(BASE + 379) in str(caught.value)
        assert str(os.getpid()) in str(caught.value)
        assert state_of(stack, "redis-store").state == "running"  # one server's trouble doesn't stop the others
        assert stack.down(["redis-cache"]) == []


def test_down_does_not_touch_a_process_that_took_over_the_pid(stack: LocalStack, home: Path) -> None:
    stack.down(["redis-cache"])
    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            now = record("redis-cache", bystander.pid)
            assert now is not None
            Record("redis-cache", now.pid, now.ticks - 1, now.boot).save(home / "run" / "redis-cache.pid")
            assert stack.down(["redis-cache"]) == []
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_a_lost_pid_file_is_found_again(stack: LocalStack, home: Path) -> None:
    stack.up(["redis-cache"])
    before = state_of(stack, "redis-cache").pid
    (home / "run" / "redis-cache.pid").unlink()
    assert stack.up(["redis-cache"]) == {"redis-cache": 0.0}
    assert state_of(stack, "redis-cache").pid == before
    (home / "run" / "redis-cache.pid").write_text("not json")
    assert stack.down(["redis-cache"]) == ["redis-cache"]


@pytest.mark.sampled
def test_servers_outlive_the_command_in_a_session_of_their_own(stack: LocalStack, home: Path) -> None:
    stack.down(["redis-cache"])
    result = headwater(home, "up", "--only", "redis-cache")
    assert result.returncode == 0, result.stderr
    assert "redis-cache is up after" in result.stdout
    state = json.loads(headwater(home, "ps", "--json").stdout)["services"][4]
    assert (state["name"], state["state"]) == ("redis-cache", "running")
    assert os.getsid(state["pid"]) == state["pid"]


def starts_elasticsearch(pid: int) -> bool:
    """Whether a process has come as far as that; it may look for a Java first."""
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if any("elasticsearch" in word for word in child.cmdline()):
                return True
    return False


@pytest.mark.alone  # interrupted by the clock
def test_up_that_is_killed_half_way_is_healed_by_the_next(stack: LocalStack, home: Path) -> None:
    env = {**os.environ, "HEADWATER_HOME": str(home), "HEADWATER_PORT_BASE": str(BASE)}
    argv = [sys.executable, "-m", "console.cli", "up", "--only", "elasticsearch"]
    for with_signal in (signal.SIGINT, signal.SIGKILL):
        stack.down(["elasticsearch"])
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            assert eventually(lambda: starts_elasticsearch(child.pid), 120)
            child.send_signal(with_signal)
            output, _ = child.communicate(timeout=30)
            assert child.returncode != 0
            assert "Traceback" not in output
    stack.up(["elasticsearch"])
    assert state_of(stack, "elasticsearch").state == "running"


@pytest.mark.sampled
def test_java_17_runs_the_java_servers_too(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [jdk for home in java.candidates() if (jdk := java.read(home)) and jdk.major == 17]
    if not old:
        pytest.skip("no Java 17 on this machine")
    servers = ["kafka", "connect", "elasticsearch"]
    stack.down(servers)
    monkeypatch.setenv("JAVA_HOME", str(old[0].home))
    fresh = LocalStack(stack.site.home, BASE)
    assert all(fresh.up(servers).values())
    for name in servers:
        command = psutil.Process(pids(fresh)[name]).cmdline()
        assert command[0] == str(old[0].java)
    fresh.down(servers)


def test_errors_carry_the_last_log_lines(stack: LocalStack, home: Path) -> None:
    stack.up(["redis-store"])
    stack.down(["redis-store"])
    log = home / "data" / "redis-store" / "appendonly.aof"
    kept = log.read_bytes()
    try:
        log.write_bytes(b"this is no append-only file\r\n" * 100)
        with pytest.raises(StackError) as caught:
            stack.up(["redis-store"])
    finally:
        log.write_bytes(kept)
    said = str(caught.value)
    assert "redis-store did not become healthy: it ended" in said or "redis-store ended at once" in said
    assert "Bad file format" in str(caught.value)
    stack.up(["redis-store"])


def test_wipe_asks_first_and_refuses_while_running(stack: LocalStack, home: Path) -> None:
    stack.up(["redis-store"])
    with pytest.raises(StackError, match="redis-store is running"):
        stack.wipe(["redis-store"])
    refused = headwater(home, "down", "--only", "redis-store", "--wipe")
    assert refused.returncode == 1
    assert state_of(stack, "redis-store").state == "running"
    assert headwater(home, "down", "--only", "redis-store", "--wipe", "--yes").returncode == 0
    assert not (home / "data" / "redis-store").exists()
