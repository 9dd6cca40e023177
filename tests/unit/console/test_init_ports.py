"""The addresses that `headwater init` writes are those of the local servers as they are set up here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from console.cli import init
from deploy.local.endpoints import Endpoints
from deploy.local.site import Site
from tests.unit.operations.test_propose import looked

KINDS = ("elasticsearch", "opensearch", "redis", "iceberg")


@pytest.mark.parametrize("base", ["24000", None])
def test_the_defaults_are_the_local_servers_ports(
    base: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It wrote 15092 for a stack that begins at 24000: another stack's servers, or none."""
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path))
    monkeypatch.delenv("HEADWATER_PORT_BASE", raising=False)
    if base:
        monkeypatch.setenv("HEADWATER_PORT_BASE", base)
    monkeypatch.setattr("operations.propose.proposal.look", lambda *_: looked())
    sinks = [word for kind in KINDS for word in ("--sink", kind)]
    done = CliRunner().invoke(init.command, ["postgres://own@localhost/shop", "--yes", "--out", "-", *sinks])
    assert done.exit_code == 0, done.output
    servers = ("KAFKA", "CONNECT", "REDIS_STORE", "REDIS_CACHE", "ELASTICSEARCH", "OPENSEARCH")
    local = Endpoints.of(Site.find()).environment()
    for name in (f"HEADWATER_{server}" for server in servers):
        assert f": ${{{name}:-{local[name]}}}\n" in done.stdout
