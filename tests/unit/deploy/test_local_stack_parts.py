"""The pure parts of the local stack: coordinates, Java's choice, sites, records, unpacking, selection."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from cdc.errors import StackError
from deploy.local import artifacts, java, maven, ports, process
from deploy.local.account import Account, blocked_at, unprivileged
from deploy.local.endpoints import Endpoints
from deploy.local.java import Jdk
from deploy.local.keeper import Keeper
from deploy.local.maven import Coordinate
from deploy.local.process import Record
from deploy.local.services.registry import SERVICES, select
from deploy.local.site import Site
from deploy.local.stack import LocalStack
from deploy.local.unpack import unpack
from tests.support.jvms import fake_jdk, jvms

__all__ = ["jvms"]


@pytest.mark.parametrize(
    ("text", "file_name"),
    [
        ("g.h:a:1.0", "a-1.0.jar"),
        ("g:a:1.0:zip", "a-1.0.zip"),
        ("g:a:1.0:tar.gz:plugin", "a-1.0-plugin.tar.gz"),
    ],
)
def test_coordinates_round_trip(text: str, file_name: str) -> None:
    coordinate = Coordinate.parse(text)
    assert str(coordinate) == text
    assert coordinate.file_name == file_name


@pytest.mark.parametrize("text", ["", "g:a", "g:a:", "g:a:1:jar:c:x"])
def test_what_is_no_coordinate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Maven coordinate"):
        Coordinate.parse(text)


def test_maven_errors_lose_colour_and_address() -> None:
    output = "[INFO] x\n\x1b[1;31m[ERROR]\x1b[m Could not find artifact g:a in central (https://repo.example/x)\n"
    assert maven.first_error(output.replace("\x1b[1;31m[ERROR]\x1b[m", "[ERROR]")) == (
        "Could not find artifact g:a in central ((repository)"
    )
    assert "example" not in maven.first_error(output)
    assert maven.first_error("") == "no output"


def test_the_pinned_list_is_whole_and_names_no_host() -> None:
    pinned = artifacts.pinned()
    files = [file for unit in pinned.values() for file in unit]
    assert all(re.fullmatch(r"[0-9a-f]{128}", file.sha512) and file.size > 0 for file in files)
    assert "://" not in artifacts.LIST.read_text()
    assert {
        "kafka",
        "connect-avro",
        "connect-plugins",
        "registry",
        "elasticsearch",
        "elasticsearch-9",
        "opensearch",
        "postgres-x86_64",
        "postgres-aarch64",
        "redis",
        "spark",
        "spark-s3",
    } == set(pinned)
    names = [file.coordinate.artifact for file in pinned["kafka"]]
    assert len(names) == len(set(names))  # two versions of one jar on a class path would be decided by file order
    versions = {f.coordinate.version for f in pinned["kafka"] if f.coordinate.group == "org.apache.kafka"}
    assert versions == {"4.3.1"}


def test_java_17_alone_will_do(jvms: Path) -> None:
    fake_jdk(jvms / "old", "11.0.2")
    fake_jdk(jvms / "a", "17.0.15")
    assert java.choose().version == "17.0.15"


def test_the_newest_tried_java_is_taken_and_an_untried_one_only_in_need(
    jvms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_jdk(jvms / "c", "99-ea")
    assert java.choose().major == 99
    fake_jdk(jvms / "a", "17.0.15")
    fake_jdk(jvms / "b", "25.0.3")
    assert java.choose().major == 25
    monkeypatch.setenv("JAVA_HOME", str(jvms / "a"))
    assert java.choose().major == 17


def test_no_java_is_told_with_what_was_found(jvms: Path) -> None:
    fake_jdk(jvms / "old", "1.8.0_392")
    with pytest.raises(StackError, match=r"found: 8\.0_392 in ") as caught:
        java.choose()
    assert "JAVA_HOME" in caught.value.fix


def test_class_archives_renew_themselves_only_where_java_can(tmp_path: Path) -> None:
    archive = tmp_path / "x.jsa"
    assert "-XX:+AutoCreateSharedArchive" in Jdk(tmp_path, "25.0.3").archive_flags(archive)
    old = Jdk(tmp_path, "17.0.15")
    assert old.archive_flags(archive)[0] == f"-XX:ArchiveClassesAtExit={archive}"
    archive.touch()
    assert old.archive_flags(archive)[0] == f"-XX:SharedArchiveFile={archive}"


def test_a_closed_folder_on_the_way_is_found(tmp_path: Path) -> None:
    account = Account("somebody", 54321, 54321)
    closed = tmp_path / "closed"
    (closed / "in").mkdir(parents=True)
    closed.chmod(0o700)
    first = blocked_at(closed / "in" / "missing", account)
    assert first is not None  # pytest's own folder is closed already, or ours is
    assert first == closed or first in closed.parents
    assert blocked_at(Path("/usr/bin/env"), account) is None


def test_root_needs_another_user_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HEADWATER_RUN_AS", "no-such-user")
    with pytest.raises(StackError, match="does not exist"):
        unprivileged()
    monkeypatch.setenv("HEADWATER_RUN_AS", "root")
    with pytest.raises(StackError, match="is root"):
        unprivileged()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged() is None


def test_site_comes_from_arguments_then_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "env"))
    monkeypatch.setenv("HEADWATER_PORT_BASE", "20000")
    assert Site.find().home == tmp_path / "env"
    assert Site.find().port("postgres") == 20432
    assert Site.find(tmp_path / "arg", 30000).port("kafka") == 30092
    monkeypatch.delenv("HEADWATER_HOME")
    monkeypatch.delenv("HEADWATER_PORT_BASE")
    monkeypatch.chdir(tmp_path)
    assert (Site.find().home, Site.find().port_base) == (tmp_path / ".headwater", 15000)


@pytest.mark.parametrize("base", ["x", "80", "65535", "-1", "1e4"])
def test_a_bad_port_base_is_refused(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_PORT_BASE", base)
    with pytest.raises(StackError, match="no usable port base"):
        Site.find()


@pytest.mark.parametrize("name", ["a b", "a,b", "a:b", "a\nb", 'a"b', "jürgen", "Téléchargements", "東京"])
def test_in_a_home_that_servers_would_mangle_none_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an older version are stopped there, though, and `make clean` removes what they left."""
    monkeypatch.setattr(artifacts, "ensure", lambda *_: pytest.fail("something was fetched"))
    home = tmp_path / name
    stack = LocalStack(home, 20000)
    with pytest.raises(StackError, match="HEADWATER_HOME"):
        stack.up(["redis-cache"])
    assert not home.exists()
    assert stack.down(["redis-cache"]) == []
    data = stack.site.data("redis-cache")
    assert stack.wipe(["redis-cache"]) == ["redis-cache"] and not data.exists()


def test_secrets_are_made_once_and_closed(tmp_path: Path) -> None:
    site = Site(tmp_path, 20000, None)
    assert not site.has_secret("postgres")
    secret = site.secret("postgres")
    assert len(secret) >= 32
    assert site.secret("postgres") == secret
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "secrets" / "postgres").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def lost(tmp_path: Path) -> Site:
    """A home with a cluster whose password is gone."""
    site = Site(tmp_path, 20000, None)
    cluster = tmp_path / "data" / "postgres" / "cluster"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("18\n")
    return site


def test_whoever_asks_for_a_lost_password_makes_no_new_one(lost: Site) -> None:
    postgres = SERVICES["postgres"]
    asks = [partial(Endpoints.of, lost), partial(postgres.ailment, lost), partial(postgres.prepare, lost, {})]
    for ask in asks:
        with pytest.raises(StackError, match="is lost") as raised:
            ask()
        assert "put the file back" in raised.value.fix and not lost.has_secret("postgres")


def test_the_password_is_made_before_there_is_a_cluster_and_read_beside_it(lost: Site) -> None:
    fresh = Site(lost.home / "fresh", 20000, None)
    assert Endpoints.of(fresh).postgres_password == fresh.secret("postgres")
    made = lost.secret("postgres")
    assert Endpoints.of(lost).postgres_password == made


def test_ps_and_up_leave_a_server_alone_whose_password_is_lost(lost: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keeper, "find", lambda self: Record(self.service.name, os.getpid(), 1, "boot"))
    monkeypatch.setattr(Keeper, "_stop", lambda self, server: pytest.fail("it was stopped"))
    stack = LocalStack(lost.home, lost.port_base)
    state = stack._state(SERVICES["postgres"])
    assert state.state == "unhealthy" and "is lost" in state.detail
    with pytest.raises(StackError, match="is lost"):
        Keeper(SERVICES["postgres"], lost).up({}, print, threading.Event())


def test_a_record_knows_its_process_and_no_other(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        server = process.record("x", child.pid)
        assert server is not None
        server.save(tmp_path / "x.pid")
        assert Record.load(tmp_path / "x.pid") == server
        assert server.alive()
        assert not Record("x", server.pid, server.ticks + 1, server.boot).alive()
        assert not Record("x", server.pid, server.ticks, "another boot").alive()
        child.kill()
    assert not server.alive()
    (tmp_path / "x.pid").write_text("[]")
    assert Record.load(tmp_path / "x.pid") is None
    assert Record.load(tmp_path / "missing.pid") is None


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process.start_ticks(child.pid) is None
    finally:
        child.wait()


def test_log_tail_is_short_and_survives_a_missing_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert process.log_tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(10000)))
    tail = process.log_tail(log, 3)
    assert tail.splitlines()[-3:] == ["    line 9997", "    line 9998", "    line 9999"]
    assert str(log) in tail


def test_selection_pulls_in_needs_in_order_or_not() -> None:
    assert [s.name for s in select(["connect"], with_needs=True)] == ["kafka", "connect"]
    assert [s.name for s in select(["connect"], with_needs=False)] == ["connect"]
    assert [s.name for s in select(None, with_needs=True)] == list(SERVICES)
    for wrong in (["mysql"], []):
        with pytest.raises(StackError, match="no server"):
            select(wrong, with_needs=True)
    order = list(SERVICES)
    assert all(order.index(need) < order.index(s.name) for s in SERVICES.values() for need in s.needs)


def test_ports_do_not_collide() -> None:
    site = Site(Path("/x"), 15000, None)
    numbers = [site.port(name) for service in SERVICES.values() for name in service.port_names]
    assert len(numbers) == len(set(numbers)) == 14
    assert ports.describe(None) == "a process that belongs to someone else"


def test_zip_keeps_execute_bits_and_stays_inside(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    with zipfile.ZipFile(good, "w") as archive:
        for name, mode in (("top/bin/run", 0o755), ("top/lib/x.jar", 0o644)):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"x")
    (tmp_path / "out").mkdir()
    unpack("elasticsearch", [good], tmp_path / "out")
    assert (tmp_path / "out/bin/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/lib/x.jar").stat().st_mode & 0o777 == 0o644
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("top/../../evil", b"x")
    with pytest.raises(StackError, match="outside of itself"):
        unpack("elasticsearch", [bad], tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.fixture(params=["checked by Python", "checked by us"])
def packed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a tar is to lie, beside an empty folder ``out``; by a Python of 3.11.4 and by one of before (Debian 12)."""
    if request.param == "checked by us":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        theirs = tarfile.TarFile.extractall

        def plain(self: tarfile.TarFile, path: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
            theirs(self, path, members)

        monkeypatch.setattr(tarfile.TarFile, "extractall", plain)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python does not check")
    (tmp_path / "out").mkdir()
    return tmp_path / "packed.tar.gz"


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.uid, info.gid = kind, link, 54321, 54321
    info.size = 1 if kind == tarfile.REGTYPE else 0
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info


def _pack(path: Path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x") if member.size else None)


def test_a_tar_is_unpacked_whole_and_is_ours(packed: Path) -> None:
    top, out = _member("./lib", tarfile.DIRTYPE), packed.with_name("out")
    hard, soft = (
        _member("lib/same", tarfile.LNKTYPE, "lib/a.jar"),
        _member("lib/b.jar", tarfile.SYMTYPE, "../lib/a.jar"),
    )
    _pack(packed, top, _member("lib/a.jar"), hard, soft)
    unpack("connect-plugins", [packed], out)
    assert {path.name: path.read_bytes() for path in (out / "lib").iterdir()} == dict.fromkeys(
        ("a.jar", "b.jar", "same"), b"x"
    )
    assert (out / "lib" / "b.jar").is_symlink()
    assert {path.lstat().st_uid for path in out.rglob("*")} == {os.geteuid()}


@pytest.mark.parametrize(
    "members",
    [
        [_member("../evil")],
        [_member("in/../../evil")],
        [_member("way", tarfile.SYMTYPE, ".."), _member("way/evil")],
        [_member("way", tarfile.SYMTYPE, "/tmp")],
        [_member("evil", tarfile.LNKTYPE, "../packed.tar.gz")],
        [_member("pipe", tarfile.FIFOTYPE)],
        [_member("disk", tarfile.BLKTYPE)],
    ],
    ids=lambda members: members[-1].name,
)
def test_tar_stays_inside(packed: Path, members: list[tarfile.TarInfo]) -> None:
    _pack(packed, *members)
    with pytest.raises((tarfile.TarError, StackError)):
        unpack("connect-plugins", [packed], packed.with_name("out"))
    assert not packed.with_name("evil").exists() and not any(packed.with_name("out").iterdir())


def _starter(folder: Path, seconds: float) -> process.Launch:
    """Ends after ``seconds``, and leaves the pid of a server that runs."""
    script = f"sleep {seconds}; sleep 30 >/dev/null 2>&1 & echo $! > server.pid"
    return process.Launch(
        ["/bin/sh", "-c", script], folder, folder / "log", pid_file=folder / "server.pid", starter_seconds=0.3
    )


@pytest.mark.parametrize("load", [0.0, 100.0])
def test_a_start_has_longer_on_a_machine_that_is_busy(
    load: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    launch = _starter(tmp_path, 0.8)
    if not load:
        with pytest.raises(process.StartError, match=r"server was not ready after \d s and was ended \(load 0 on"):
            process.spawn("server", launch, threading.Event())
        return
    server = process.spawn("server", launch, threading.Event())
    assert server.alive()
    os.kill(server.pid, 9)
