"""Which Java Spark gets, wherever the servers' is."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from cdc.errors import ConfigError
from cdc.java import for_spark
from console.cli import up
from deploy.local import sparkcluster
from spark.machine import session, startup
from tests.support.jvms import fake_jdk, jvms, started

__all__ = ["jvms", "started"]


def test_it_is_found_where_no_variable_names_it(jvms: Path) -> None:
    fake_jdk(jvms / "a", "11.0.2")
    fake_jdk(jvms / "b", "17.0.15")
    fake_jdk(jvms / "c", "21.0.8")
    fake_jdk(jvms / "d", "23")
    fake_jdk(jvms / "e", "25.0.3")
    assert for_spark() == jvms / "c"


def test_a_named_one_goes_first_if_it_fits(jvms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jdk(jvms / "a", "17.0.15")
    fake_jdk(jvms / "b", "21.0.8")
    new = fake_jdk(jvms / "c", "25.0.3")
    monkeypatch.setenv("PATH", str(jvms / "a" / "bin"))
    assert for_spark() == jvms / "a"
    monkeypatch.setenv("JAVA_HOME", str(jvms / "b"))
    assert for_spark() == jvms / "b"
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert for_spark() == jvms / "a", "the one on the PATH"
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert for_spark() == jvms / "b", "the newest that fits"


def test_one_that_does_not_say_its_version_is_left_to_spark(jvms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = fake_jdk(jvms.parent / "shims", "17")
    (shim / "release").unlink()
    fake_jdk(jvms / "c", "25.0.3")
    monkeypatch.setenv("PATH", str(shim / "bin"))
    assert for_spark() is None
    monkeypatch.setenv("JAVA_HOME", str(jvms / "nothing"))  # which is what Spark would take, and not the shim
    with pytest.raises(ConfigError):
        for_spark()


def test_only_the_virtual_machine_gets_it(
    jvms: Path, started: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, new = fake_jdk(jvms / "a", "17.0.15"), fake_jdk(jvms / "b", "25.0.3")
    session._launch({}, tmp_path / "said", [], {})
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("JAVA_HOME", str(new))
    session._launch({}, tmp_path / "said", [], {})
    assert [one["JAVA_HOME"] for one in started] == [str(fits)] * 2
    assert os.environ["JAVA_HOME"] == str(new)


def test_without_one_no_virtual_machine_is_started_and_what_is_there_is_told(
    jvms: Path, started: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fake_jdk(jvms / "b", "25.0.3")
    monkeypatch.setenv("JAVA_HOME", str(new))
    with pytest.raises(ConfigError) as caught:
        session._launch({}, tmp_path / "said", [], {})
    assert f"Java 17 to 22, and there is none here (found: 25.0.3 in {new})" in str(caught.value)
    assert not started


def test_a_cluster_of_this_machine_gets_it_too(jvms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jdk(jvms / "a", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(jvms / "b", "25.0.3")))
    seen: list[str] = []
    monkeypatch.setattr(sparkcluster.subprocess, "Popen", lambda *_, env, **__: seen.append(env["JAVA_HOME"]))
    sparkcluster.SparkCluster(tmp_path)._start("master", sparkcluster.MASTER)
    assert seen == [str(jvms / "a")]


def test_up_tells_that_there_is_none_and_prepares_nothing(
    jvms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[Path] = []
    monkeypatch.setattr(up.startup, "prepare", lambda jars, *_: prepared.append(jars))
    assert "Java 17 to 22" in str(up.prepare_spark(tmp_path, tmp_path / "archive", print))
    assert not prepared
    fake_jdk(jvms / "a", "17.0.15")
    assert up.prepare_spark(tmp_path, tmp_path / "archive", print) is None
    assert prepared == [tmp_path]


def test_up_ends_with_that_warning_and_without_an_error(
    jvms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SimpleNamespace(home=tmp_path, spark_archive=tmp_path / "archive")
    stack = SimpleNamespace(up=lambda *_: {}, site=site)
    monkeypatch.setattr("deploy.local.stack.LocalStack", lambda: stack)
    monkeypatch.setattr("deploy.local.artifacts.spark_jars", lambda _: [tmp_path / "a.jar"])
    monkeypatch.setattr("deploy.local.own_classes.prepare", lambda *_: None)
    monkeypatch.setattr(up.startup, "prepare", lambda *_: None)
    done = CliRunner().invoke(up.command)
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: Spark runs on Java 17 to 22, and there is none here (found: none)")
    fake_jdk(jvms / "a", "17.0.15")
    assert not CliRunner().invoke(up.command).stderr


def test_an_archive_of_classes_is_of_the_java_that_it_was_made_by(jvms: Path, tmp_path: Path) -> None:
    fake_jdk(jvms / "a", "17.0.15")
    before = startup._kind(tmp_path)
    assert startup._kind(tmp_path) == before
    fake_jdk(jvms / "b", "21.0.8")
    assert startup._kind(tmp_path) != before, "Java would ignore it at each start, and nothing make it anew"
