"""Processes that do without pandas: nothing of ours or of Spark's loads it, and what we do with Spark still works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _said(code: str) -> str:
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_arrow_loads_pandas_where_it_may() -> None:
    """If this fails, PyArrow has changed: then cdc/lean.py may be needless."""
    assert _said("import sys, pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)") == "True"


def test_a_process_can_do_without_it() -> None:
    code = (
        "import sys; from cdc.lean import without_pandas; without_pandas(); without_pandas(); import pyarrow as pa;"
        "print(pa.array([1]).to_pylist(), 'pandas' in sys.modules, len([one for one in sys.meta_path"
        " if type(one).__name__ == '_Without']))"
    )
    assert _said(code) == "[1] False 1"


def test_where_it_is_loaded_already_nothing_changes() -> None:
    code = (
        "import pandas; from cdc.lean import without_pandas; without_pandas(); import pandas.tseries.offsets;"
        "import importlib; print(importlib.import_module('pandas.io.sql').__name__)"
    )
    assert _said(code) == "pandas.io.sql"


@pytest.mark.parametrize("module", ["spark.machine.worker_daemon", "console.cli.__main__"])
def test_workers_and_commands_do_without_it(module: str) -> None:
    """The daemon with what its workers need; a command while it runs."""
    call = "" if module.startswith("spark") else "sys.argv[1:] = ['--version']; main.command_line()"
    code = (
        f"import sys, atexit, importlib; main = importlib.import_module({module!r})\n"
        "def tell():\n"
        "    import pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)\n"
        f"atexit.register(tell)\n{call}"
    )
    assert _said(code).splitlines()[-1] == "False"


def test_spark_needs_none_for_what_we_do() -> None:
    """Stages in Arrow, frames of rows and of Arrow tables, and answers in Arrow."""
    code = """
import sys
from cdc.lean import without_pandas
without_pandas()
from pathlib import Path
import tempfile
import pyarrow as pa
from spark.arrow import map_in_arrow
from spark.machine.session import build_session
def twice(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [2 * n for n in batch.column(0).to_pylist()]})
with tempfile.TemporaryDirectory() as folder:
    spark = build_session("lean", master="local[1]", jars=None, log=Path(folder) / "spark.log")
    rows = spark.createDataFrame([(1,), (2,)], "n long").union(spark.createDataFrame(pa.table({"n": [3]})))
    made = map_in_arrow(rows, twice, "n long")
    print(sorted(made.toArrow().column(0).to_pylist()), [row.n for row in made.orderBy("n").collect()],
          "pandas" in sys.modules)
    spark.stop()
"""
    assert _said(code).splitlines()[-1] == "[2, 4, 6] [2, 4, 6] False"
