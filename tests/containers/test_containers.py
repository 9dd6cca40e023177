"""The servers that the other tests meet here are containers of ours, and they are what docker-compose.yml describes."""

from __future__ import annotations

import psycopg
import pytest
import redis
import requests

from connectors.debezium import QUIET_CONNECTOR
from deploy.images.catalog import IMAGES
from deploy.images.docker import docker
from tests.support.containers import NAMES, Containers
from tests.support.servers import servers

# Who a container's first process is: never root.
USERS = {
    "postgres": "postgres",
    "kafka": "appuser",
    "connect": "kafka",
    "elasticsearch": "elasticsearch",
    "registry": "registry",
}


@pytest.fixture(scope="module")
def containers() -> Containers:
    made = servers()
    assert isinstance(made, Containers), "these tests would otherwise run against the local stack and prove nothing"
    made.up(more=["registry"])
    return made


@pytest.mark.parametrize("name", NAMES)
def test_every_server_is_a_container_and_not_root(containers: Containers, name: str) -> None:
    container = containers._made[name].get_container_id()
    image = docker("inspect", "--format", "{{.Config.Image}}", container)
    assert image in {one.tag for one in IMAGES.values()}
    user = docker("exec", container, "sh", "-c", "id -un $(stat -c %u /proc/1)")
    assert user == USERS.get(name, "redis")


def test_no_port_is_open_to_the_network(containers: Containers) -> None:
    for name, made in containers._made.items():
        ports = docker("inspect", "--format", "{{json .HostConfig.PortBindings}}", made.get_container_id())
        assert '"HostIp":"127.0.0.1"' in ports or name in ("connect", "registry"), f"{name}: {ports}"


def test_versions_are_the_pinned_ones(containers: Containers) -> None:
    ends = containers.endpoints
    with redis.Redis.from_url(ends.redis_store_url) as client:
        assert client.info("server")["redis_version"] == IMAGES["redis"].version
    # The minimal distribution answers 405 to `GET /`.
    nodes = requests.get(f"{ends.elasticsearch_url}/_nodes/_local", timeout=10).json()["nodes"]
    assert [node["version"] for node in nodes.values()] == [IMAGES["elasticsearch"].version]
    assert requests.get(ends.connect_url, timeout=10).json()["version"] == IMAGES["kafka"].version
    plugins = requests.get(f"{ends.connect_url}/connector-plugins", timeout=10).json()
    assert IMAGES["connect"].version in [plugin["version"] for plugin in plugins]
    assert QUIET_CONNECTOR in [plugin["class"] for plugin in plugins]
    with psycopg.connect(
        host=ends.postgres_host,
        port=ends.postgres_port,
        user=ends.postgres_superuser,
        password=ends.postgres_password,
        dbname="postgres",
    ) as connection:
        [[version]] = connection.execute("SHOW server_version").fetchall()
    assert f"{version}.0" == IMAGES["postgres"].version


def test_a_killed_server_keeps_its_data(containers: Containers) -> None:
    with redis.Redis.from_url(containers.endpoints.redis_store_url) as client:
        client.set("hwtest:kept", "yes")
        containers.kill("redis-store")
        with pytest.raises(redis.ConnectionError):
            client.ping()
        containers.up(["redis-store"])
        assert client.get("hwtest:kept") == b"yes"
        client.delete("hwtest:kept")
