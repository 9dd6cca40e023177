"""Connect's folder of plugins: Debezium with our connector beside it, and our converters and our transformation, each
with its jars."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc.errors import StackError
from deploy import compiled
from deploy.connect import build
from deploy.local.java import compiler
from deploy.local.site import Site

DEBEZIUM = "debezium-connector-postgres"


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
    kafka, avro, debezium = units["kafka"], units["connect-avro"], units["connect-plugins"] / DEBEZIUM
    _plugin(site, "headwater-json", top / "headwater-json", [kafka])
    _plugin(site, "headwater-outbox", top / "headwater-outbox", [kafka])
    _plugin(site, "headwater-avro", top / "headwater-avro", [kafka, avro], beside=avro)
    # A class of ours that extends Debezium's is found only by the loader that has Debezium's: in the same folder.
    _plugin(site, "headwater-postgres", top / DEBEZIUM, [kafka, debezium], beside=debezium)
    return top


def _plugin(site: Site, name: str, folder: Path, jars: Sequence[Path], beside: Path | None = None) -> None:
    """One plugin's folder, with our own jar in it and those beside which it stands."""
    folder.mkdir(parents=True)
    (folder / f"{name}.jar").symlink_to(_built(site, name, jars))
    for jar in beside.glob("*.jar") if beside else ():
        (folder / jar.name).symlink_to(jar)


def _built(site: Site, name: str, jars: Sequence[Path]) -> Path:
    target = site.folder("run") / f"{name}-{compiled.digest(build.sources(name), jars)}.jar"
    if target.exists():
        return target
    javac = compiler(site.jdk)
    try:
        build.build(name, str(javac), jars, target)
    except (OSError, RuntimeError) as error:
        raise StackError(
            f"Connect's plugin {name} could not be built with {javac}: {error}",
            fix="install a whole JDK (Debian: openjdk-17-jdk-headless), a JRE has no javac; or set JAVA_HOME to one",
        ) from error
    return target
