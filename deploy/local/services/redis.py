"""Two Redis servers: a cache that may evict, and a store that never does and logs its writes."""

from __future__ import annotations

import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import ClassVar

import redis

from cdc.errors import StackError
from deploy.local.process import Launch
from deploy.local.services.base import PROBE_SECONDS, Service
from deploy.local.site import HOST, Site


@cache
def program(unit: Path) -> Path:
    """A redis-server that runs here: the fetched one, else one on the PATH (it links the system's OpenSSL 3)."""
    fetched = unit / platform.machine() / "redis-server"
    on_path = shutil.which("redis-server")
    for candidate in [fetched, *([Path(on_path)] if on_path else [])]:
        try:
            answer = subprocess.run([str(candidate), "--version"], capture_output=True, timeout=10)  # noqa: PLW1510
        except OSError:
            continue
        if answer.returncode == 0:
            return candidate
    raise StackError(
        f"no redis-server runs on this machine (tried {fetched} and the PATH)",
        means="the fetched one needs glibc and OpenSSL 3",
        fix="install Redis 6.2 or newer (Debian: apt-get install redis-server)",
    )


class _Redis(Service):
    settings: ClassVar[dict[str, str]]
    stop_seconds = 10.0
    programs = ("redis-server", "redis-check-rdb")
    boot_seconds = 60.0  # the store reads its whole log first

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """The fetched programs."""
        return ("redis",)

    def prepare(self, site: Site, units: dict[str, Path]) -> None:
        """Write redis.conf."""
        folder = site.data(self.name)
        settings = {
            "bind": HOST,
            "port": str(site.port(self.name)),
            "protected-mode": "yes",
            "daemonize": "no",
            "dir": str(folder),
            "save": '""',
            "loglevel": "warning",
            "tcp-keepalive": "60",
            **self.settings,
        }
        (folder / "redis.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """``redis-server redis.conf``."""
        folder = site.data(self.name)
        return Launch([str(program(units["redis"])), str(folder / "redis.conf")], folder, site.log(self.name))

    def ailment(self, site: Site) -> str | None:
        """PING; while it loads its log it answers with an error."""
        client = redis.Redis(HOST, site.port(self.name), socket_timeout=PROBE_SECONDS)
        try:
            client.ping()
        except redis.RedisError as error:
            return str(error)
        finally:
            client.close()
        return None

    def address(self, site: Site) -> str:
        """As a URL."""
        return f"redis://{HOST}:{site.port(self.name)}/0"


class RedisCache(_Redis):
    """What the cache sink fills: memory only, forgets the least recently used."""

    name = "redis-cache"
    port_names = ("redis-cache",)
    settings: ClassVar[dict[str, str]] = {"maxmemory": "256mb", "maxmemory-policy": "allkeys-lru", "appendonly": "no"}


class RedisStore(_Redis):
    """The row store: never evicts, and loses at most a second of writes if the machine goes down."""

    name = "redis-store"
    port_names = ("redis-store",)
    settings: ClassVar[dict[str, str]] = {
        # A limit, so that a runaway load is refused by Redis and not ended by the kernel's out-of-memory killer.
        "maxmemory": "2gb",
        "maxmemory-policy": "noeviction",
        "appendonly": "yes",
        "appendfsync": "everysec",
    }
