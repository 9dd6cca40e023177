"""`headwater down --wipe`: the servers' data go, and what pipelines keep of a Postgres that is gone is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cdc.errors import StackError
from console.cli.main import cli
from deploy.local.endpoints import Endpoints
from deploy.local.keeper import Keeper
from deploy.local.site import Site


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose servers are stopped, with a warehouse and the state of pipelines, one of which knows a Postgres."""
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(Keeper, "down", lambda _: False)
    monkeypatch.setattr(Keeper, "find", lambda _: None)
    made = tmp_path / "home"
    for file, text in {
        "data/postgres/PG_VERSION": "",
        "data/redis-cache/dump.rdb": "",
        "state/flights/source.json": json.dumps({"system_identifier": "7", "timeline": 1}),
        "state/shop/search/g1/definition.json": "{}",
        "state/torn/source.json": "",
        "warehouse/catalog.db": "",
    }.items():
        (made / file).parent.mkdir(parents=True)
        (made / file).write_text(text)
    return made


def down(*options: str) -> str:
    done: Result = CliRunner().invoke(cli, ["down", "--wipe", "--yes", *options])
    assert done.exit_code == 0, done.output
    return done.output


def files(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


def test_what_pipelines_keep_stays_and_is_named(home: Path) -> None:
    """It may be of servers of one's own, and of a deployment in containers all of it is. The next Postgres is refused
    for what is of the one that is gone."""
    before = files(home)
    said = down()
    assert files(home) - {"run/stack.lock"} == {name for name in before if not name.startswith("data/")}
    assert f"what pipelines keep stays: {home}/state/flights, {home}/warehouse." in said
    assert "remove it before the next `headwater apply` or `make demo`" in said


def test_where_the_log_stays_the_way_out_is_another_one(home: Path) -> None:
    """The connector and the topics know of the former Postgres, too: `apply` is refused without any state."""
    said = down("--only", "postgres")
    assert f"stays: {home}/state/flights." in said and "`headwater recapture FILE`, once" in said
    assert "remove it" not in said


def test_nothing_is_told_where_no_postgres_is_gone(home: Path) -> None:
    assert "stays" not in down("--only", "redis-cache")
    down()
    assert "stays" not in down()


def test_nor_where_no_pipeline_keeps_anything(home: Path) -> None:
    (home / "state/flights/source.json").unlink()
    assert "stays" not in down("--only", "postgres")


def test_a_lost_password_is_not_said_to_be_mended_by_a_new_postgres_alone(home: Path) -> None:
    cluster = home / "data" / "postgres" / "cluster"
    cluster.mkdir()
    (cluster / "PG_VERSION").touch()
    with pytest.raises(StackError) as raised:
        Endpoints.of(Site.find(home))
    assert "headwater down --wipe (at its end it says what else" in raised.value.fix
