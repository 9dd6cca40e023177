"""Tables from which a row is erased, on Spark and Iceberg alone: no file holds it, and nothing else is lost."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.erasing_lake import KEY, ROWS

pytestmark = [pytest.mark.sampled(part=0)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("lake"))
    argv = [sys.executable, "-m", "tests.support.erasing_lake", folder, secrets.token_urlsafe(36)]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    root = Path(__file__).parents[2]
    ran = subprocess.run(argv, env=env, cwd=root, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("form", ["2", "3"])
def test_no_file_of_a_table_holds_a_row_that_was_deleted(found: Any, form: str) -> None:
    before, after, again = found[form]["before"], found[form]["after"], found[form]["again"]
    # It is in data files, and its first letters are in manifests.
    assert {".parquet", ".avro"} <= set(before["files"]), before
    assert before["shown"] == before["nested"] == 2 and before["blind"] and before["tags"] == ["march"], before
    assert after["files"] == [] and (after["shown"], after["nested"], after["blind"], after["tags"]) == (0, 0, 0, [])
    everybody = [one for one in range(ROWS + 1) if one != KEY]
    assert before["rows"] == after["rows"] == again["rows"] == everybody
    assert again["files"] == []


@pytest.mark.parametrize("form", ["2", "3"])
def test_the_writer_knows_what_it_has_applied(found: Any, form: str) -> None:
    assert found[form]["known"] == [True, True, False]


def test_versions_of_a_row_leave_its_history(found: Any) -> None:
    one = found["history"]
    assert one["before"]["shown"] == 2 and {".parquet", ".avro"} <= set(one["before"]["files"])
    assert one["after"]["files"] == [] and one["after"]["shown"] == 0
    assert len(one["after"]["rows"]) == 2 * ROWS - 2 and KEY not in one["after"]["rows"]
    assert one["known"] == [True, False]


def test_what_a_killed_rewriting_has_left_is_removed(found: Any) -> None:
    """Killed between the commit that expires snapshots and the removal of their files: no snapshot named them any more,
    and the same erasure again found nothing. Or between a commit's manifests, which tell the least and greatest values
    of files that were to go, and the commit."""
    left, after = found["history"]["left"], found["history"]["after"]
    assert (left["removed"], left["there"]) == (2, ["data/being-written.parquet", "metadata/younger-m0.avro"])
    assert left["look"] == after
