"""Our Java classes: who compiles them, what a jar says that it was made of, what is said of one that is another's."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import StackError
from deploy import compiled
from deploy.images import base
from deploy.local import artifacts, java
from deploy.local.java import compiler
from deploy.local.services.opensearch import OpenSearch
from deploy.spark import build
from spark.machine.jars import OWN_JAR, OWN_SOURCES, of_another
from tests.support.jvms import fake_jdk, jvms

__all__ = ["jvms"]


def jar(folder: Path, comment: bytes) -> Path:
    """A jar of ours, by what it says that it was made of."""
    with zipfile.ZipFile(folder / OWN_JAR, "w") as packed:
        packed.comment = comment
    return folder / OWN_JAR


def test_the_engine_knows_of_which_sources_it_wants_its_classes() -> None:
    """Where this fails a source in deploy/spark has changed: write what it says into spark/machine/jars.py."""
    assert compiled.sources_digest(build.SOURCES) == OWN_SOURCES


def test_a_jar_of_another_version_is_found(tmp_path: Path) -> None:
    other = tmp_path / "else.jar"
    assert of_another([other]) is None
    assert of_another([other, jar(tmp_path, compiled._comment(build.SOURCES, [tmp_path]))]) is None
    for comment in (b"", b"0123456789ab", b"0123456789ab 0123456789ab"):
        assert of_another([other, jar(tmp_path, comment)]) == tmp_path / OWN_JAR
    (tmp_path / OWN_JAR).write_text("half")
    assert of_another([tmp_path / OWN_JAR]) == tmp_path / OWN_JAR


def test_a_jar_says_what_it_was_made_of_and_is_made_again_for_other_jars(tmp_path: Path) -> None:
    source = tmp_path / "A.java"
    source.write_text("class A {}")
    made, javac = tmp_path / "a.jar", tmp_path / "javac"
    javac.write_text("#!/bin/sh\nexit 0\n")
    javac.chmod(0o755)
    compiled.build(str(javac), [source], [tmp_path], made)
    assert compiled.is_of(made, [source], [tmp_path])
    assert not compiled.is_of(made, [source], [tmp_path / "elsewhere"])
    source.write_text("class A { int b; }")
    assert not compiled.is_of(made, [source], [tmp_path])


def test_a_compiler_that_does_not_end_is_told_like_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    javac = tmp_path / "javac"
    javac.write_text("#!/bin/sh\nexec sleep 60\n")
    javac.chmod(0o755)
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 0.2)
    with pytest.raises(RuntimeError, match="it had not ended after"):
        compiled.build(str(javac), [], [], tmp_path / "a.jar")


def test_the_compiler_of_another_java_is_taken_where_the_newest_is_no_jdk(jvms: Path) -> None:
    fake_jdk(jvms / "jre", "21.0.1")
    assert compiler(java.choose()) == jvms / "jre" / "bin" / "javac"
    for name, version in (("jdk", "17.0.15"), ("old", "11.0.2")):
        javac = fake_jdk(jvms / name, version) / "bin" / "javac"
        javac.write_text("#!/bin/sh\n")
        javac.chmod(0o755)
    assert java.choose().major == 21
    assert compiler(java.choose()) == jvms / "jdk" / "bin" / "javac"


def test_an_import_that_ends_early_does_not_leave_tar_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(bytes(4 << 20))
    monkeypatch.setattr(base, "program", lambda name: "/bin/false" if name == "docker" else f"/bin/{name}")
    with pytest.raises(StackError, match="docker import failed"):
        base._import(str(tmp_path))


@pytest.mark.parametrize("image", ["connect", "kafka", "elasticsearch"])
def test_a_setting_keeps_the_equals_signs_that_it_ends_with(image: str) -> None:
    script = (Path(base.__file__).parent / image / "entrypoint").read_text().splitlines()
    start = next(at for at, line in enumerate(script) if line.startswith("while IFS="))
    assert "<(env -0)" in "".join(script[start : start + 6])
    loop = [*script[start : start + 2], 'printf "%s|%s\\n" "$name" "$value"', "done < <(env -0)"]
    env = {"A": "abc=", "B": "abc==", "C": "=x=y\nz ", "D": ""}
    said = subprocess.run(["/bin/bash", "-c", "\n".join(loop)], env=env, check=True, capture_output=True, text=True)
    assert all(f"{name}|{value}\n" in said.stdout for name, value in env.items()), said.stdout


def test_a_cache_that_servers_cant_read_from_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "a:b"))
    with pytest.raises(StackError, match="holds a colon"):
        artifacts.cache_dir()
    agent: Any = {"opensearch": tmp_path / "jane doe" / "opensearch"}
    with pytest.raises(StackError, match="at blanks"):
        OpenSearch().more_options(agent)
