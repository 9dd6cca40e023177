"""How the suite is run: what runs beside what, whose turn it is, and that a failure is one in either stage."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.__main__ as suite
from tests.support import sampling, schedule

ROOT = Path(__file__).parents[3]
HOOKS = "from tests.conftest import pytest_collection_modifyitems\n"
INI = "[pytest]\nmarkers =\n    slow\n    alone\n    sampled\n"
SAMPLED = """
import pytest
from tests.support.sampling import in_turn

@pytest.mark.sampled
@pytest.mark.parametrize("n", range(30))
def test_long(n): pass

@pytest.mark.sampled(turn=0, of=2)
def test_one(): pass

@pytest.mark.sampled(turn=1, of=2)
def test_other(): pass

def test_short(): pass

@pytest.fixture(params=in_turn("a", "b"))
def form(request): return request.param

@pytest.mark.sampled
def test_of_a_form(form): pass
"""


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


def test_each_long_proof_has_its_turn_once_in_nine_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, seen = project(tmp_path, SAMPLED), Collector()
    (folder / "conftest.py").unlink()
    assert (
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)], [seen]) == 0
    )
    everything = {item.name for item in seen.items}
    assert len(everything) == 35
    turns = []
    for number in range(36):
        monkeypatch.setenv(sampling.VARIABLE, f"{number:08x}abcdef")
        turns.append(everything - {item.name for item in sampling.left_out(seen.items)})
    long = {name for name in everything if "long" in name}
    assert all("test_short" in turn for turn in turns)
    assert set().union(*turns) == everything
    assert sum(len(turn & long) for turn in turns) == 4 * len(long)
    forms = [name for turn in turns for name in turn if "of_a_form" in name]
    assert len(forms) == 4 and set(forms) == {"test_of_a_form[a]", "test_of_a_form[b]"}
    one, other = ([at for at, turn in enumerate(turns) if name in turn] for name in ("test_one", "test_other"))
    assert len(one) == len(other) == 9 and not {*one} & {*other}


def test_files_go_to_either_half() -> None:
    files = [f"tests/test_{n}.py::test" for n in range(20)]
    draws = [{file for file in files if sampling._drawn(file, number, 1, 4)} for number in range(8)]
    assert {at for at, draw in enumerate(draws) if draw} == {1, 5}
    assert len(draws[1]) > 4 and len(draws[5]) > 4 and draws[1] | draws[5] == {*files}


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
