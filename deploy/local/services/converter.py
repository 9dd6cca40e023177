"""Connect's folder of plugins: Debezium as it came, and the Avro converter with the jar that we build for it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cdc.errors import StackError
from deploy import compiled
from deploy.connect import build
from deploy.local.site import Site


def plugin(site: Site, jars: Path, kafka: Path) -> Path:
    """The folder to put on Connect's ``plugin.path``, made anew.

    Args:
        site: whose worker.
        jars: the converter's, from the cache.
        kafka: Connect's own, to compile against.

    Raises:
        StackError: there is no compiler, or it failed.
    """
    top = site.data("connect") / "plugins"
    folder = top / "headwater-avro"
    shutil.rmtree(top, ignore_errors=True)
    folder.mkdir(parents=True)
    for jar in jars.glob("*.jar"):
        (folder / jar.name).symlink_to(jar)
    (folder / "headwater-avro.jar").symlink_to(_built(site, [kafka, jars]))
    return top


def _built(site: Site, jars: Sequence[Path]) -> Path:
    target = site.folder("run") / f"headwater-avro-{compiled.digest([build.SOURCE], jars)}.jar"
    if target.exists():
        return target
    javac = site.jdk.home / "bin" / "javac"
    try:
        build.build(str(javac), jars, target)
    except (OSError, RuntimeError) as error:
        raise StackError(
            f"the Avro converter for Connect could not be built with {javac}: {error}",
            fix="set JAVA_HOME to a whole JDK (Debian: openjdk-17-jdk-headless), not a JRE",
        ) from error
    return target
