"""Upkeep of a warehouse's tables, on Spark and Iceberg alone: debt is bounded, and nothing is lost by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.upkeep_lake import MANY

pytestmark = [pytest.mark.sampled(part=0)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    argv = [sys.executable, "-m", "tests.support.upkeep_lake", str(tmp_path_factory.mktemp("lake"))]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    root = Path(__file__).parents[2]
    ran = subprocess.run(argv, env=env, cwd=root, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("form", ["2", "3"])
def test_fault_35_debt_is_bounded_and_no_row_mark_or_tag_is_lost(found: Any, form: str) -> None:
    one = found[f"many{form}"]
    assert max(one["files"]) <= 2 * MANY + 2, one["files"]
    files, deletes, manifests, snapshots = one["left"]
    assert files <= 2 * MANY and deletes <= 2 * MANY and manifests <= 3 * MANY and snapshots <= 8, one["left"]
    assert max(one["snapshots"]) > snapshots, one["did"]
    # The newest batch of each query is known, also after its snapshot was expired; one that never was is not.
    assert one["known"] == [True, True, False]
    assert one["right"] and one["duckdb"] and one["tagged"]
    assert {"compact", "expire"} <= one["note"][f"many{form}"]["steps"].keys(), one["note"]


@pytest.mark.parametrize("form", ["2", "3"])
def test_files_of_nobody_go_and_living_ones_stay(found: Any, form: str) -> None:
    one = found[f"orphans{form}"]
    assert one["alone"] and not one["old"] and one["young"], one
    assert one["right"] and one["tag"]


@pytest.mark.parametrize("form", ["2", "3"])
def test_no_file_goes_where_another_table_has_its_files(found: Any, form: str) -> None:
    one = found[f"orphans{form}"]
    assert "another table" in one["shared"] and one["kept"] and one["stamped"], one


@pytest.mark.parametrize("form", ["2", "3"])
def test_fault_34_what_somebody_else_commits_in_between_is_survived(found: Any, form: str) -> None:
    """Our merge is done again, once; our compaction is put off, and done later."""
    one = found[f"disturbed{form}"]
    assert one["met"] == 2 and one["after_merges"]
    assert one["put_off"] == [] and one["note"][f"disturbed{form}"]["failed"] == 1, one
    assert one["later"] and one["right"], one


def test_fault_34_a_users_own_compaction_beside_ours(found: Any) -> None:
    assert found["beside"]["done"] and found["beside"]["right"] and found["beside"]["known"], found["beside"]


def test_a_table_that_is_only_appended_to_is_kept_too(found: Any) -> None:
    assert found["history"]["right"] and found["history"]["files"] <= MANY + 1, found["history"]
