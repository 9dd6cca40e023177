"""Connect's folder of plugins: Debezium as it came, and our converters, each with the jars that it stands on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc.errors import StackError
from deploy import compiled
from deploy.connect import build
from deploy.local.site import Site


def plugins(site: Site, units: Mapping[str, Path]) -> Path:
    """The folder to put on Connect's ``plugin.path``, made anew.

    Args:
        site: whose worker.
        units: folders of jars in the cache, by name.

    Raises:
        StackError: there is no compiler, or it failed.
    """
    top = site.data("connect") / "plugins"
    shutil.rmtree(top, ignore_errors=True)
    kafka, avro = units["kafka"], units["connect-avro"]
    _plugin(site, top / "headwater-json", [kafka])
    beside = _plugin(site, top / "headwater-avro", [kafka, avro])
    for jar in avro.glob("*.jar"):
        (beside / jar.name).symlink_to(jar)
    return top


def _plugin(site: Site, folder: Path, jars: Sequence[Path]) -> Path:
    """One converter's folder, with its own jar in it."""
    folder.mkdir(parents=True)
    (folder / f"{folder.name}.jar").symlink_to(_built(site, folder.name, jars))
    return folder


def _built(site: Site, name: str, jars: Sequence[Path]) -> Path:
    target = site.folder("run") / f"{name}-{compiled.digest([build.source(name)], jars)}.jar"
    if target.exists():
        return target
    javac = site.jdk.home / "bin" / "javac"
    try:
        build.build(name, str(javac), jars, target)
    except (OSError, RuntimeError) as error:
        raise StackError(
            f"Connect's converter {name} could not be built with {javac}: {error}",
            fix="set JAVA_HOME to a whole JDK (Debian: openjdk-17-jdk-headless), not a JRE",
        ) from error
    return target
