"""`headwater down --wipe`: all begins afresh, also what pipelines have kept of the former servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cdc.errors import StackError
from console.cli.main import cli
from deploy.local.endpoints import Endpoints
from deploy.local.keeper import Keeper
from deploy.local.site import Site
from deploy.local.stack import LocalStack
from spark.disk.lease import Lease


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose servers are stopped, with the state of two pipelines and a warehouse."""
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(Keeper, "down", lambda _: False)
    monkeypatch.setattr(Keeper, "find", lambda _: None)
    made = tmp_path / "home"
    for file in (
        "data/postgres/PG_VERSION",
        "state/flights/source.json",
        "state/shop/search/g1/definition.json",
        "warehouse/catalog.db",
        "secrets/examples.env",
        "logs/kafka.log",
    ):
        (made / file).parent.mkdir(parents=True)
        (made / file).touch()
    return made


def down(*options: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, ["down", *options], input=answer)


def left(home: Path) -> set[str]:
    return {one.name for one in home.iterdir()} - {"run"}


def test_what_pipelines_know_of_the_servers_goes_with_their_data(home: Path) -> None:
    """The next cluster was refused else: it is another one than that which the state knows."""
    done = down("--wipe", "--yes")
    assert done.exit_code == 0, done.output
    assert "data deleted, the state of flights, shop, the warehouse" in done.output
    assert left(home) == {"data", "secrets", "logs"} and not list((home / "data").iterdir())


def test_it_is_named_before_it_goes(home: Path) -> None:
    refused = down("--wipe", answer="n\n")
    assert f"every server, the state of flights, shop, the warehouse in {home}?" in refused.output
    assert refused.exit_code == 1 and (home / "state/flights/source.json").exists()


def test_of_single_servers_it_stays_and_is_told(home: Path) -> None:
    done = down("--only", "postgres", "--wipe", "--yes")
    assert "stay the state of flights, shop, the warehouse, which still know of these data" in done.output
    assert left(home) == {"data", "state", "warehouse", "secrets", "logs"} and not (home / "data/postgres").exists()


def test_what_lies_elsewhere_stays(home: Path, tmp_path: Path) -> None:
    """Of a folder that leads to a larger disk, or holds a link to one, the link alone goes."""
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (home / "state" / "flights" / "linked").symlink_to(elsewhere)
    (home / "warehouse" / "catalog.db").unlink()
    (home / "warehouse").rmdir()
    (home / "warehouse").symlink_to(elsewhere)
    LocalStack(home, 15000).wipe()
    assert (elsewhere / "file").exists() and left(home) == {"data", "secrets", "logs"}


def test_a_pipeline_that_is_run_is_not_pulled_from_under_it(home: Path) -> None:
    lease = Lease(home / "state" / "shop" / "search" / "g1", "search")
    lease.take()
    try:
        refused = down("--wipe", "--yes")
    finally:
        lease.release()
    assert refused.exit_code != 0 and "shop/search by process" in str(refused.exception)
    assert (home / "state/flights/source.json").exists() and (home / "data/postgres").exists()
    assert down("--wipe", "--yes").exit_code == 0


def test_a_lost_password_is_not_said_to_be_mended_by_a_new_postgres_alone(home: Path) -> None:
    cluster = home / "data" / "postgres" / "cluster"
    cluster.mkdir()
    (cluster / "PG_VERSION").touch()
    with pytest.raises(StackError) as raised:
        Endpoints.of(Site.find(home))
    assert raised.value.fix.endswith("headwater down --wipe")
