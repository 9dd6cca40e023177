"""A Connect that goes on over an upgrade runs the plugins that it was started with: `up` says so."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deploy import compiled
from deploy.local import stack
from deploy.local.services import plugins
from deploy.local.services.connect import Connect
from deploy.local.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.find(tmp_path / "home", 26000)


@pytest.fixture
def units(tmp_path: Path) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in ("kafka", "connect-avro", "connect-plugins")}
    for folder in [*folders.values(), folders["connect-plugins"] / plugins.DEBEZIUM]:
        folder.mkdir()
    return folders


def test_a_worker_of_other_sources_is_told_with_the_way_out(
    site: Site, units: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_built", plugins._jar)
    assert plugins.outdated(site, units) == [], "it was never started here"
    plugins.plugins(site, units)
    monkeypatch.setattr(stack.Keeper, "up", lambda *_: 0.0)

    def said() -> list[str]:
        lines: list[str] = []
        stack.LocalStack(tmp_path / "home", 26000)._up_one(Connect(), units, [], lines.append, threading.Event())
        return lines

    assert said() == ["connect is up (was already)"]
    was = compiled.digest
    monkeypatch.setattr(compiled, "digest", lambda sources, jars: was(sources, jars)[::-1])
    assert plugins.outdated(site, units) == [
        "headwater-json",
        "headwater-outbox",
        "headwater-avro",
        "headwater-postgres",
    ]
    assert "runs other plugins than those of this version" in said()[1]
    assert "`headwater down --only connect`, then `headwater up`" in said()[1]
    monkeypatch.setattr(stack.Keeper, "up", lambda *_: 9.0)
    assert said() == ["connect is up after 9.0 s"]
