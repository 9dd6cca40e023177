"""What `make wheels` builds, installed where no clone is: every file that the code reads is in it, and it works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfile

import pytest

from examples.common import Passwords
from tests.support.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
CLIENT = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]["version"]
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def call(*words: str | Path, cwd: Path, more: Mapping[str, str] | None = None) -> str:
    """A command without anything of this clone in its environment; its standard output."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_SUBMIT_ARGS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env={**environment, **(more or {})}, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def the_pages_line() -> str:
    """What docs/runbooks.md says to type: it is what is run here."""
    [line] = re.findall(r"^uv pip install .*$", (ROOT / "docs" / "runbooks.md").read_text(), flags=re.MULTILINE)
    return line


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheels` builds."""
    folder = tmp_path_factory.mktemp("dist") / "dist"
    call("make", "-s", "wheels", f"DIST={folder}", cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a clean environment with the wheels in it, needs at the versions of the lock file."""
    folder = tmp_path_factory.mktemp("clean")
    uv = Path(sys.executable).with_name("uv")
    call(uv, "venv", "-q", "--python", sys.executable, "env", cwd=folder)
    for file in (*dist.glob("*.whl"), ROOT / "requirements.lock"):
        copyfile(file, folder / file.name)
    call(uv, *the_pages_line().split()[1:], "-q", cwd=folder, more={"VIRTUAL_ENV": str(folder / "env")})
    return folder / "env" / "bin"


def test_the_archives_are_whole_and_of_one_version(dist: Path) -> None:
    assert sorted(path.name for path in dist.iterdir() if path.suffix in (".whl", ".gz")) == [
        f"headwater-{VERSION}-py3-none-any.whl",
        f"headwater-{VERSION}.tar.gz",
        f"headwater_client-{CLIENT}-py3-none-any.whl",
        f"headwater_client-{CLIENT}.tar.gz",
    ]
    with zipfile.ZipFile(dist / f"headwater-{VERSION}-py3-none-any.whl") as wheel:
        within = set(wheel.namelist())
    kept = call("git", "ls-files", "--", *PACKAGES, cwd=ROOT).splitlines()
    assert len(kept) > 300
    assert set(kept) - within == set(), "templates, styles, lists of jars: what is not in it can't be read"
    assert {name.split("/")[0] for name in within} == {*PACKAGES, f"headwater-{VERSION}.dist-info"}


def test_it_works_without_a_clone(installed: Path, tmp_path: Path, local_stack: Servers) -> None:
    headwater = installed / "headwater"
    assert call(headwater, "--version", cwd=tmp_path).split()[-1] == VERSION
    assert "postgres://" in call(headwater, "init", "--help", cwd=tmp_path)
    assert "version: 1" in call(headwater, "template", cwd=tmp_path)
    assert "properties" in json.loads(call(headwater, "schema", cwd=tmp_path))
    where = "import spark.machine.session, headwater_client as c; print(spark.machine.session.__file__, c.__file__)"
    assert str(ROOT) not in call(installed / "python", "-c", where, cwd=tmp_path)
    page = "from console.http.pages import render; print(render.HTTP)"
    folder = Path(call(installed / "python", "-c", page, cwd=tmp_path).strip())
    assert (folder / "templates" / "base.html").is_file() and (folder / "static" / "page.css").is_file()
    # An example's file, checked against real servers.
    copyfile(ROOT / "examples" / "flights" / "pipeline.yaml", tmp_path / "pipeline.yaml")
    passwords = Passwords.load(home=local_stack.site.home).as_environment()
    more = {**local_stack.endpoints.environment(), **passwords}
    command = [str(headwater), "check", "pipeline.yaml", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True, check=False, timeout=120
    )
    report = {check["check"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert report["kafka"] == "ok" and len(report) > 10, done.stderr
