"""What a Redis keeps on its disk after a value was deleted, and what is said of it: asked of its files themselves."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sinks.redis.persist import Files, files_of, write_anew
from sinks.redis.settings import Settings
from tests.support.disks import holding
from tests.support.redis_server import StartRedis, free_port, redis_servers

pytestmark = pytest.mark.stack

VALUE = secrets.token_urlsafe(36)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartRedis]:
    with redis_servers(tmp_path) as made:
        yield made


def settings(url: str) -> Settings:
    return Settings(name="cache", url=url, targets={})


def erased(url: str) -> Files:
    """A value is deleted, and the files are written anew."""
    with redis.Redis.from_url(url) as client:
        assert client.delete("k") == 1
    [found] = write_anew(settings(url), lambda _line: None, 30.0)
    return found


@pytest.mark.parametrize("verb", ["save", "bgsave"])
def test_a_dump_that_somebody_made_once_is_written_anew(start: StartRedis, tmp_path: Path, verb: str) -> None:
    """It is never told to save by itself: without that, its dump would keep the value for ever."""
    url = start()
    with redis.Redis.from_url(url) as client:
        client.set("k", VALUE)
        client.execute_command("DEBUG", "SLEEP", "2.1")  # a start and a save in one second look the same
        client.execute_command(verb.upper())
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            pass
    assert [path.name for path in holding(tmp_path, VALUE)] == ["dump.rdb"]
    assert [one.dump for one in files_of(settings(url))] == [True]
    assert erased(url).dump
    assert holding(tmp_path, VALUE) == []


def test_a_log_is_written_anew(start: StartRedis, tmp_path: Path) -> None:
    url = start("--appendonly", "yes")
    with redis.Redis.from_url(url) as client:
        client.set("k", VALUE)
    assert holding(tmp_path, VALUE)
    assert erased(url).log
    assert holding(tmp_path, VALUE) == []


def test_who_keeps_no_files_gets_none_and_what_an_earlier_start_may_have_left_is_named(
    start: StartRedis, tmp_path: Path
) -> None:
    """A dump would be read at the next start, as if it were what the cache holds."""
    port = free_port()
    url = start(port=port)
    with redis.Redis.from_url(url) as client:
        client.set("k", VALUE)
    assert (erased(url).kinds, list(tmp_path.rglob("*.rdb"))) == ("", [])
    with redis.Redis.from_url(url) as client:
        client.set("k", VALUE)
        client.save()
        client.shutdown(nosave=True)
    start(port=port)  # which reads the dump, and never says so (Redis before 7)
    found = erased(url)
    if found.dump:
        assert holding(tmp_path, VALUE) == []
    else:
        assert "dump (RDB)" in found.unseen and str(tmp_path / str(port)) in found.unseen


def test_replicas_are_named(start: StartRedis) -> None:
    url = start("--repl-diskless-sync", "yes")
    start("--replicaof", "127.0.0.1", url.rpartition(":")[2].partition("/")[0])
    with redis.Redis.from_url(url) as client:
        while client.info("replication")["connected_slaves"] < 1:
            pass
    [found] = files_of(settings(url))
    assert found.replicas == 1 and "replicas (1)" in found.unseen
