"""`make setup` goes on from whatever an earlier one has left of its environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
# Stands in for every Python: makes environments, needs a pip only where the real one would, and compiles as that does.
PYTHON = f"""#!/bin/sh
here=$(dirname "$0")
case "$*" in
  "-m pip"*) [ -e "$here/pip" ] ;;
  "-m venv --clear "*) rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; touch "$4/bin/pip"
                       printf '#!/bin/sh\\n' > "$4/bin/uv"; chmod +x "$4/bin/uv" ;;
  "-m compileall"*) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `make setup` looks at, and the Python that it is given."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "client").mkdir()
    for name in ("requirements.lock", "pyproject.toml", "client/pyproject.toml"):
        (tmp_path / name).touch()
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def setup(folder: Path, clone: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run(clone or folder, "setup", f"PYTHON={folder / 'python'}")


def run(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(clone), *words]
    alone = {"PATH": os.environ["PATH"]}  # nothing of the make that may have started this
    return subprocess.run(command, env=alone, capture_output=True, text=True, check=False)


def test_an_environment_without_pip_is_made_again(folder: Path) -> None:
    (folder / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(folder / "python", folder / ".venv" / "bin")
    done = setup(folder)
    assert done.returncode == 0, done.stderr
    assert (folder / ".venv" / "ready").is_file()


def test_one_that_has_pip_is_kept(folder: Path) -> None:
    assert setup(folder).returncode == 0
    (folder / ".venv" / "mine").touch()
    (folder / ".venv" / "ready").unlink()
    assert setup(folder).returncode == 0
    assert (folder / ".venv" / "mine").is_file() and (folder / ".venv" / "ready").is_file()


@pytest.mark.parametrize("name", ["plain", "a b", "c++ (new)"])
def test_everything_is_compiled_wherever_the_clone_lies(folder: Path, name: str) -> None:
    """And no environment: its packages are compiled as they are installed."""
    clone = folder / name
    clone.mkdir()
    for there in ("Makefile", "requirements.lock", "pyproject.toml", "client"):
        (folder / there).rename(clone / there)
    for one in (clone / "cdc", clone / ".other"):
        one.mkdir()
        (one / "code.py").touch()
    done = setup(folder, clone)
    assert done.returncode == 0, done.stderr
    assert [path.parents[1].name for path in clone.rglob("*.pyc")] == ["cdc"]


def test_code_of_others_beside_ours_need_not_compile(folder: Path) -> None:
    """An environment that somebody has made himself, whose packages have templates or code for another Python."""
    (folder / "venv" / "lib").mkdir(parents=True)
    (folder / "venv" / "lib" / "old.py").write_text("print 'of Python 2'\n")
    done = setup(folder)
    assert done.returncode == 0, done.stderr
    assert (folder / ".venv" / "ready").is_file()


def test_every_room_with_code_is_compiled() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [named] = re.findall(r"^ROOMS := (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert named.split() == sorted({path.partition("/")[0] for path in tracked.splitlines()})


def test_wheels_go_into_a_folder_that_holds_other_things(folder: Path) -> None:
    """Those of an earlier version are replaced; whatever else is there stays."""
    theirs, former = folder / "My Downloads", ("headwater-0.1.0-py3-none-any.whl", "headwater_client-0.1.0.tar.gz")
    theirs.mkdir()
    (folder / "My").mkdir()
    for name in ("thesis.tar.gz", "headwater.md", *former):
        (theirs / name).touch()
    assert setup(folder).returncode == 0
    uv = folder / ".venv" / "bin" / "uv"
    both = ("headwater-0.2.0", "headwater_client-0.2.0")
    made = {f"{name}{end}" for name in both for end in (".tar.gz", "-py3-none-any.whl")}
    uv.write_text("#!/bin/sh\n" + "".join(f'touch "$4/{name}"\n' for name in made))
    done = run(folder, "wheels", f"DIST={theirs}")
    assert done.returncode == 0, done.stderr
    assert {one.name for one in theirs.iterdir()} == {"thesis.tar.gz", "headwater.md", *made}
    assert (folder / "My").is_dir() and all(name in done.stdout for name in made) and "thesis" not in done.stdout


def test_the_lock_has_what_the_oldest_python_needs() -> None:
    """Debian 12 has 3.11.2: what is asked for below 3.11.3 was not in the list that a newer Python had made."""
    oldest = {"python_version": "3.11", "python_full_version": "3.11.0", "extra": ""}
    lock = [line.removesuffix(" \\") for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    locked = {canonicalize_name(Requirement(line).name) for line in lock}
    for name in locked:
        try:
            wanted = [Requirement(one) for one in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:  # of another system, or another Python
            continue
        for one in wanted:
            if one.marker is None or one.marker.evaluate(oldest):
                assert canonicalize_name(one.name) in locked, f"{name} needs {one}"
