"""The peer's Elasticsearch: 7.17, because pgsync's client refuses 8. Ours in heap, collector and settings.

It stands beside the local stack's own: the same home, other ports, a data folder of its own.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from cdc.errors import StackError
from deploy.local import artifacts, java, maven
from deploy.local.account import blocked_at
from deploy.local.artifacts import Pinned, cache_dir
from deploy.local.java import Jdk
from deploy.local.keeper import Keeper
from deploy.local.maven import Coordinate
from deploy.local.process import Launch
from deploy.local.services.elasticsearch import Elasticsearch
from deploy.local.site import Site
from deploy.local.unpack import unpack

PINNED = Pinned(
    Coordinate.parse("org.elasticsearch.distribution.integ-test-zip:elasticsearch:7.17.13:zip"),
    57216504,
    "07800acb3d1350636a5655a8d2ffd865136ff0186ade144d76d6d69839447f090a1e399460a7df062be3a12eb57a8b6e"
    "61a94411c6a71ab862f4190f2142dacc",
)
UNIT = "peer-elasticsearch"
# From HEADWATER_PORT_BASE: our Elasticsearch has +200 and +300, the peer's +217 and +317.
PORT_OFFSET = 17
# 7.17 needs Java's security manager, which later versions have not.
JAVA_VERSIONS = range(17, 21)
Progress = Callable[[str], None]


class PeerSite(Site):
    """The local stack's home, with the peer's ports and a Java that Elasticsearch 7.17 runs on."""

    @classmethod
    def beside(cls, site: Site) -> PeerSite:
        """The peer's site for a local stack."""
        return cls(site.home, site.port_base + PORT_OFFSET, site.account)

    @cached_property
    def jdk(self) -> Jdk:
        """The newest usable Java of those it runs on; StackError if there is none."""
        found = [jdk for home in java.candidates() if (jdk := java.read(home)) is not None]
        usable = [jdk for jdk in found if jdk.major in JAVA_VERSIONS and self._reaches(jdk)]
        if not usable:
            seen = ", ".join(sorted({jdk.version for jdk in found})) or "none"
            raise StackError(
                f"no Java {JAVA_VERSIONS.start} to {JAVA_VERSIONS.stop - 1} (found: {seen})",
                means="Elasticsearch 7.17, the newest that pgsync's client accepts, can't start",
                fix="install one (Debian: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME",
            )
        return max(usable, key=lambda jdk: jdk.major)

    def _reaches(self, jdk: Jdk) -> bool:
        return self.account is None or blocked_at(jdk.home, self.account) is None


class PeerElasticsearch(Elasticsearch):
    """Our Elasticsearch service with another version's habits."""

    name = UNIT

    @classmethod
    def units(cls) -> tuple[str, ...]:
        """The old distribution."""
        return (UNIT,)

    def _settings(self, site: Site, root: Path) -> str:
        lines = super()._settings(site, root).splitlines(keepends=True)
        # The minimal 7.17 has no security module and refuses settings that it does not know.
        return "".join(line for line in lines if not line.startswith("xpack."))

    def launch(self, site: Site, units: dict[str, Path]) -> Launch:
        """In the foreground: the 7.17 launcher becomes the server, so its pid is ours from the start."""
        root = site.shared_data(self.name)
        env = {
            "ES_JAVA_HOME": str(site.jdk.home),
            "ES_PATH_CONF": str(root / "config"),
            "ES_TMPDIR": str(root / "tmp"),
        }
        program = str(units[UNIT] / "bin" / "elasticsearch")
        return Launch([program], cwd=root, log=site.log(self.name), env=env, account=site.account)


def folder() -> Path:
    """Where the distribution is, or will be, in the cache."""
    return cache_dir() / f"{UNIT}-{PINNED.coordinate.version}-{PINNED.sha512[:12]}"


def ensure(progress: Progress = lambda line: None) -> Path:
    """Fetch, check and unpack the distribution if it is not there; return its folder.

    Raises:
        StackError: Maven is missing or failed, or the digest differs.
    """
    if not folder().is_dir():
        cache_dir().mkdir(mode=0o755, parents=True, exist_ok=True)
        with (cache_dir() / f"{UNIT}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder().is_dir():  # another process may have been faster
                progress(f"fetching {PINNED.coordinate}, {PINNED.size / 2**20:.0f} MiB")
                _fetch()
    return folder()


def _fetch() -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{UNIT}-", dir=cache_dir()))
    try:
        maven.run(maven.copy_pom([PINNED.coordinate], work / "arrived"), "copy", work)
        arrived = work / "arrived" / PINNED.coordinate.file_name
        artifacts.check(arrived, PINNED)
        unpacked = work / "unpacked"
        unpacked.mkdir()
        unpack("elasticsearch", [arrived], unpacked)
        for place in [unpacked, *(path for path in unpacked.rglob("*") if path.is_dir())]:
            place.chmod(0o755)  # whatever our umask: under root it runs as somebody else
        unpacked.rename(folder())
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def elasticsearch(site: Site, progress: Progress = lambda line: None) -> Iterator[str]:
    """Run the peer's Elasticsearch beside the local stack of ``site``.

    Yields:
        its URL. It is stopped afterwards, also on failure, unless it ran before.

    Raises:
        StackError: it can't be fetched or started; the last lines of its log are in the message.
    """
    service, place = PeerElasticsearch(), PeerSite.beside(site)
    keeper = Keeper(service, place)
    ran_before = keeper.find() is not None
    try:
        keeper.up({UNIT: ensure(progress)}, progress, threading.Event())
        yield service.address(place)
    finally:
        if not ran_before:
            keeper.down()
