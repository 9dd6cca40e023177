"""How the suite is run: what runs beside what, whose turn it is, and that a failure is one in either stage."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql

import tests.__main__ as suite
from tests.support import sampling, schedule
from tests.support.scenario import Scenario

ROOT = Path(__file__).parents[3]
HOOKS = "from tests.conftest import pytest_collection_modifyitems\n"
INI = "[pytest]\nmarkers =\n    slow\n    alone\n    sampled\n"
SAMPLED = """
import pytest
from tests.support.sampling import in_turn

@pytest.mark.sampled
@pytest.mark.parametrize("n", range(30))
def test_long(n): pass

@pytest.mark.sampled(part="one")
def test_one(): pass

@pytest.mark.sampled(part="new")
def test_new(): pass

def test_short(): pass

@pytest.fixture(params=in_turn("a", "b"))
def form(request): return request.param

def test_of_a_form(form): pass

@pytest.fixture(params=in_turn("x", "y", ring=True))
def kind(request): return request.param

@pytest.mark.sampled(part="of")
def test_of_a_kind(kind): pass
"""
FILE = "tests/test_it.py"
RING = {f"{FILE} {part}": 200 for part in (*range(sampling.PARTS), "one", "0+of", "1+of")}


def project(folder: Path, tests: str) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "pytest.ini").write_text(INI)
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "tests" / "test_it.py").write_text(tests)
    return folder


class Collector:
    """A plugin that keeps what was collected, whoever's turn it is."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = list(items)


def test_each_long_proof_has_its_turn_and_one_without_a_number_runs_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = project(tmp_path, SAMPLED), Collector()
    (folder / "conftest.py").unlink()
    words = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)]
    assert pytest.main(words, [seen]) == 0
    everything = {item.name for item in seen.items}
    assert len(everything) == 37
    monkeypatch.setattr(sampling, "measured", lambda: RING)
    turns = []
    for number in range(60):
        monkeypatch.setenv(sampling.VARIABLE, f"{number:08x}abcdef")
        turns.append(everything - {item.name for item in sampling.left_out(seen.items)})
    assert all({"test_short", "test_new"} < turn for turn in turns)
    assert set().union(*turns) == everything
    assert all(sum(name.startswith("test_of_a_form") for name in turn) == 1 for turn in turns)
    often = Counter(name for turn in turns for name in turn)
    # 600 s of 1,600: three of eight.
    assert all(10 < often[name] < 40 for name in everything - {"test_short", "test_new"}), often
    monkeypatch.delenv(sampling.VARIABLE)
    assert sampling.left_out(seen.items) == []


def test_a_run_takes_as_long_as_another() -> None:
    ring = {f"tests/test_{n}.py 0": 20 + 7 * (n % 30) for n in range(100)}
    taken = [sum(ring.values()) - sum(ring[name] for name in sampling.resting(drawn, ring)) for drawn in range(200)]
    assert all(sampling.SECONDS - 300 < seconds < sampling.SECONDS + 300 for seconds in taken)
    assert abs(sum(taken) / len(taken) - sampling.SECONDS) < 60


def test_where_all_have_room_all_run() -> None:
    assert not sampling.resting(7, {"tests/test_a.py 0": 100, "tests/test_b.py 0": 400})
    assert not sampling.resting(7, {})


def test_what_was_measured_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path, SAMPLED)
    known = tmp_path / "seconds.json"
    known.write_text(json.dumps({f"{FILE} 0": 7, f"{FILE} one": 9, "tests/test_gone.py 0": 8}))
    monkeypatch.setattr(sampling, "MEASURED", known)
    monkeypatch.setattr(sampling, "ROOT", folder)
    monkeypatch.setattr(suite, "ROOT", folder)
    (folder / ".pytest_cache").mkdir()
    case = '<testcase time="{}"><properties><property name="group" value="{}"/></properties></testcase>'
    skipped = case.format(3, f"{FILE} two").replace("<properties>", "<skipped/><properties>")
    side = skipped + case.format(2.6, f"{FILE} one") + case.format(2, f"{FILE} one") + '<testcase time="9"/>'
    (folder / ".pytest_cache" / "side-by-side.xml").write_text(f"<testsuite>{side}</testsuite>")
    (folder / ".pytest_cache" / "alone.xml").write_text(f"<testsuite>{case.format(4, f'{FILE} new')}</testsuite>")
    assert suite.main(["--seconds"]) == 0
    assert json.loads(known.read_text()) == {f"{FILE} 0": 7, f"{FILE} new": 12, f"{FILE} one": 5}


def test_the_ring_holds_the_files_that_take_turns() -> None:
    """One that is not in it runs each time; one that is no more takes the time of others."""
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.sampled(?!\(turn)|in_turn\([^)]*ring=True", path.read_text()) and path != Path(__file__)
    }
    assert {name.split(" ")[0] for name in sampling.measured()} == marked
    assert all(seconds > 0 for seconds in sampling.measured().values())


def test_a_commit_is_known_here() -> None:
    assert sampling.commit() == "" or int(sampling.commit(), 16) > 0


def test_files_that_disturb_each_other_run_in_one_process() -> None:
    one, other = "tests/integration/test_avro.py::test_a", "tests/integration/test_codec_real.py::test_b[c::d]"
    assert schedule.scope(one) == schedule.scope(other) != schedule.scope("tests/unit/project/test_suite.py::test_a")


def test_the_files_that_are_named_exist() -> None:
    named = {*schedule.LONGEST, *schedule.TOGETHER, *schedule.TOGETHER.values()}
    assert not [file for file in named if not (ROOT / file).is_file()]


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        ([(0, 7), (0, 1)], 0),
        ([(0, 7), (5, 0)], 0),
        ([(5, 0), (0, 1)], 0),
        ([(1, 7), (0, 1)], 1),
        ([(0, 7), (1, 1)], 1),
        ([(2, 0), (0, 1)], 2),
        ([(0, 0), (5, 0)], 1),
        ([(5, 0), (5, 0)], 1),
    ],
)
def test_a_failure_in_either_stage_is_one_and_so_is_no_test_at_all(stages: list[tuple[int, int]], code: int) -> None:
    assert suite.verdict(stages) == code


def test_only_what_failed_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mended = tmp_path / "mended"
    tests = (
        "import pytest, pathlib\n"
        "def test_a(): pass\n"
        "@pytest.mark.alone\n"
        f"def test_b(): assert pathlib.Path({str(mended)!r}).exists()\n"
    )
    monkeypatch.setattr(suite, "ROOT", project(tmp_path / "project", tests))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert suite.main([]) == 1
    assert "suite: 2 tests in" in capfd.readouterr().out
    mended.touch()
    assert suite.main(["--again"]) == 0
    assert "suite: 1 tests in" in capfd.readouterr().out


def test_what_was_never_made_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean-up of a test that could not prepare ended with an error of its own, and the cause stood far above."""
    asked = list[str]()

    class Connected:
        def __enter__(self) -> Connected:
            return self

        def __exit__(self, *_: object) -> None: ...

        def execute(self, statement: sql.Composed) -> None:
            asked.append(statement.as_string(None))

    class Unprepared(Scenario):
        def prepare(self, *_: object) -> None:
            raise PermissionError("the cause")

        def run(self, verb: str, *options: str, ok: tuple[int, ...] = (0,)) -> str:
            raise AssertionError(f"headwater {verb} ended with 1")

    names = ("postgres_host", "postgres_port", "postgres_superuser", "postgres_password")
    stack: Any = SimpleNamespace(up=lambda: None, endpoints=SimpleNamespace(**dict.fromkeys(names, "x")))
    monkeypatch.setattr(psycopg, "connect", lambda **_: Connected())
    with pytest.raises(PermissionError, match="the cause"), Unprepared(stack, tmp_path, "t1").running():
        pass
    assert asked == ['DROP DATABASE IF EXISTS "t1" WITH (FORCE)']
