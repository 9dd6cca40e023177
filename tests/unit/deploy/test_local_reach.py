"""What root makes for servers that run as somebody else is in that one's reach, whatever root's umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.errors import StackError
from deploy.local import artifacts, site, stack
from deploy.local.account import Account
from deploy.local.keeper import Keeper
from deploy.local.services.registry import SERVICES
from deploy.local.site import Site
from deploy.local.stack import LocalStack

SOMEBODY = Account("somebody", 54321, 54321)


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder that system data go to where the home is closed, as it is under this umask."""
    monkeypatch.setattr(site, "SYSTEM_DATA", tmp_path / "system")
    monkeypatch.setattr(site, "own", lambda *_: None)
    before = os.umask(0o077)
    yield tmp_path / "system"
    os.umask(before)


def modes(path: Path, top: Path) -> set[int]:
    """Of a folder and those above it, up to one."""
    return {one.stat().st_mode & 0o777 for one in (path, *path.parents) if one.is_relative_to(top)}


def test_the_folders_on_the_way_to_the_data_are_open(closed: Path, tmp_path: Path) -> None:
    data = Site(tmp_path / "home", 15000, SOMEBODY).shared_data("postgres")
    assert data.is_relative_to(closed)
    assert modes(data, closed) == {0o755}


def test_what_was_there_and_what_is_ones_own_stay_as_they_are(closed: Path, tmp_path: Path) -> None:
    closed.mkdir()
    data = Site(tmp_path / "home", 15000, SOMEBODY).shared_data("postgres")
    assert (modes(closed, closed), modes(data.parent, data.parent)) == ({0o700}, {0o755})
    alone = Site(tmp_path / "mine", 15000, None)
    assert modes(alone.shared_data("postgres"), alone.home) == {0o700}


@pytest.mark.parametrize("account", [SOMEBODY, None], ids=["root", "anybody"])
def test_so_is_the_cache_of_root(account: Account | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "made" / "cache"))
    monkeypatch.setattr(artifacts, "unprivileged", lambda: account)
    monkeypatch.setattr(artifacts, "_fetch", lambda *_: None)
    artifacts.ensure(["redis"])
    assert modes(tmp_path / "made" / "cache", tmp_path / "made") == {0o700 if account is None else 0o755}


def test_data_out_of_reach_are_told_with_the_folder(closed: Path, tmp_path: Path) -> None:
    closed.mkdir()
    home = Site(tmp_path / "home", 15000, SOMEBODY)
    with pytest.raises(StackError, match="'somebody' can't pass ") as raised:
        Keeper(SERVICES["elasticsearch"], home)._check_reach({"elasticsearch": Path("/usr/bin")})
    assert str(closed) in raised.value.means and raised.value.fix.startswith("chmod o+x /")


def test_of_data_that_lie_elsewhere_only_our_own_are_wiped(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have led a server's folder to a larger disk, where other things of his are."""
    monkeypatch.setattr(stack, "SYSTEM_DATA", closed)
    made = LocalStack(tmp_path / "home", 15000)
    data, theirs = made.site.folder("data"), tmp_path / "disk"
    ours = {name: closed / "abc" / name for name in ("postgres", "kafka")}
    for folder in (theirs, *ours.values(), data / "redis-store"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    for name, target in {"elasticsearch": theirs, **ours}.items():
        (data / name).symlink_to(target)
    made.wipe(["elasticsearch", "postgres", "redis-store"])
    assert (theirs / "file").exists()
    assert not ours["postgres"].exists() and (ours["kafka"] / "file").exists()
    assert [one.name for one in data.iterdir()] == ["kafka"], "links go in any case"
    made.wipe(["kafka"])
    assert list(closed.iterdir()) == [] and list(data.iterdir()) == []
