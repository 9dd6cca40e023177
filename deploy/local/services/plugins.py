"""Connect's folder of plugins: Debezium with our connector beside it, and our converters and our transformation, each
with its jars."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    top = _top(site)
    shutil.rmtree(top, ignore_errors=True)
    for plugin in _all(units):
        folder = top / plugin.folder
        folder.mkdir(parents=True)
        (folder / f"{plugin.name}.jar").symlink_to(_built(site, plugin))
        for jar in plugin.beside.glob("*.jar") if plugin.beside else ():
            (folder / jar.name).symlink_to(jar)
    return top


def outdated(site: Site, units: Mapping[str, Path]) -> list[str]:
    """Plugins of a worker that was started with other sources of ours than there are now.

    Args:
        site: whose worker.
        units: folders of jars in the cache, by name.
    """
    links = {plugin.name: _top(site) / plugin.folder / f"{plugin.name}.jar" for plugin in _all(units)}
    now = {plugin.name: _jar(site, plugin) for plugin in _all(units)}
    return [name for name, link in links.items() if link.is_symlink() and link.readlink() != now[name]]


@dataclass(frozen=True)
class _Plugin:
    """A jar of ours: its folder, the folders of jars to compile against, and the one of those that stand beside it."""

    name: str
    folder: str
    jars: Sequence[Path]
    beside: Path | None = None


def _all(units: Mapping[str, Path]) -> list[_Plugin]:
    kafka, avro, debezium = units["kafka"], units["connect-avro"], units["connect-plugins"] / DEBEZIUM
    return [
        _Plugin("headwater-json", "headwater-json", [kafka]),
        _Plugin("headwater-outbox", "headwater-outbox", [kafka]),
        _Plugin("headwater-avro", "headwater-avro", [kafka, avro], beside=avro),
        # A class of ours that extends Debezium's is found only by the loader that has Debezium's: in the same folder.
        _Plugin("headwater-postgres", DEBEZIUM, [kafka, debezium], beside=debezium),
    ]


def _top(site: Site) -> Path:
    return site.data("connect") / "plugins"


def _jar(site: Site, plugin: _Plugin) -> Path:
    return site.folder("run") / f"{plugin.name}-{compiled.digest(build.sources(plugin.name), plugin.jars)}.jar"


def _built(site: Site, plugin: _Plugin) -> Path:
    name, target = plugin.name, _jar(site, plugin)
    if target.exists():
        return target
    javac = compiler(site.jdk)
    try:
        build.build(name, str(javac), plugin.jars, target)
    except (OSError, RuntimeError) as error:
        raise StackError(
            f"Connect's plugin {name} could not be built with {javac}: {error}",
            fix="install a whole JDK (Debian: openjdk-17-jdk-headless), a JRE has no javac; or set JAVA_HOME to one",
        ) from error
    return target
