"""Whose code Spark's Python workers run, and which Spark starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pyspark
import pytest

from cdc.errors import ConfigError
from spark.machine import cluster, own_code, session, startup
from tests.support.jvms import fake_jdk, jvms, started

__all__ = ["jvms", "started"]

ROOT = Path(__file__).parents[3]
LIBRARY = sysconfig.get_path("stdlib")


@pytest.mark.parametrize("entry", [str(ROOT), ""], ids=["PYTHONPATH", "the working folder"])
def test_workers_look_where_this_process_has_found_itself(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", ["/bin", entry, LIBRARY, "/site-packages"])
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert own_code.environment() == {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}/mine"}
    monkeypatch.delenv("PYTHONPATH")
    assert own_code.environment()["PYTHONPATH"] == str(ROOT)


def test_what_is_installed_needs_no_path_and_does_not_go_before_pythons_own_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["/bin", LIBRARY, str(ROOT)])
    assert own_code.environment() == {"PYTHONSAFEPATH": "1"}


def test_spark_is_the_installed_one_and_its_workers_do_not_look_in_the_working_folder(
    jvms: Path, started: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_jdk(jvms / "a", "17.0.15")
    monkeypatch.setenv("SPARK_HOME", "/opt/another-spark")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    session._launch({}, tmp_path / "said", [], {})
    assert started[0]["SPARK_HOME"] == str(Path(pyspark.__file__).parent)
    assert started[0]["PYTHONSAFEPATH"] == "1"
    assert os.environ["SPARK_HOME"] == "/opt/another-spark" and "PYTHONSAFEPATH" not in os.environ


def test_no_session_goes_to_a_server_of_spark_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")
    for name in remote:
        monkeypatch.setenv(name, "sc://127.0.0.1:1")
    with pytest.raises(ConfigError, match="jars"):
        session.build_session("one", master="local[1]", jars=tmp_path / "none", log=tmp_path / "log")
    assert not {*remote} & os.environ.keys()


def test_nor_do_those_of_a_cluster() -> None:
    assert cluster.settings("yarn", "", "")["spark.executorEnv.PYTHONSAFEPATH"] == "1"


def test_an_archive_of_classes_is_made_by_this_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def make(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        seen.append(env)
        Path(command[-1]).touch()

    monkeypatch.setattr(startup.subprocess, "run", make)
    assert startup.prepare(tmp_path, tmp_path / "archive")
    assert seen[0]["PYTHONSAFEPATH"] == "1" and seen[0]["PATH"]


PLACES = """
import sys
from pathlib import Path
import pyarrow as pa
from spark.arrow import map_in_arrow
from spark.machine import own_code
from spark.machine.session import build_session
def places(batches):
    import cdc, sinks, spark.write
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"place": one.__file__} for one in (cdc, sinks, spark.write)])
spark = build_session("places", master="local[1]", jars=None, log=Path(sys.argv[1]))
places = map_in_arrow(spark.range(0, 1, 1, 1), places, "place string").collect()
print(*{str(Path(row.place).parents[1]) for row in places})
"""


@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False], ids=["installed", "a clone"])
def test_workers_run_what_their_driver_runs_whatever_lies_in_the_working_folder(
    tmp_path: Path, installed: bool
) -> None:
    folder = tmp_path / "work"
    if installed:  # another version's clone, say, and a program of the operator's
        (folder / "cdc").mkdir(parents=True)
        (folder / "sinks").mkdir()
        for name in ("cdc/__init__.py", "sinks/__init__.py", "spark.py"):
            (folder / name).write_text("raise SystemExit('the wrong one')")
    else:
        for name in ("cdc", "sinks", "spark"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    told = {"PYTHONPATH": str(ROOT)} if installed else {}
    left_out = {"PYTHONPATH", "PYTHONSAFEPATH", "PYSPARK_SUBMIT_ARGS"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | told
    # As the program `headwater`, which is in another folder.
    command = [sys.executable, *(["-P"] if installed else []), "-c", PLACES, str(tmp_path / "spark.log")]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(ROOT if installed else folder)], done.stderr[-2000:]
