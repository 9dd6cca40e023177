"""A comparison's folder is its own; where what it has written is gone, nothing is called equal."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import HeadwaterError, StateError
from operations.verify import buckets, work_folder
from operations.verify.buckets import SIZES, Keys, Side
from operations.verify.comparison import Comparison, compare
from operations.verify.verifier import Asked, Verifier
from operations.verify.work_folder import LOCK, OLD_SECONDS
from tests.unit.operations.test_verify_compare import side
from truth.digest import digest

NOBODY = 2**22 + 1


def left(root: Path, pid: int, age: float = 0.0) -> Path:
    made = root / f".verify-{pid}-abc"
    (made / "document").mkdir(parents=True)
    os.utime(made, (time.time() - age, time.time() - age))
    return made


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def begun(root: Path) -> None:
    with work_folder.work_folder(root):
        pass


def test_a_folder_is_another_s_while_that_holds_its_lock_whatever_its_number(tmp_path: Path) -> None:
    folder = left(tmp_path, NOBODY)
    with locked(folder):
        begun(tmp_path)
        assert folder.exists()
    begun(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_comparisons_at_once_leave_each_other_alone_and_nothing_behind(tmp_path: Path) -> None:
    with work_folder.work_folder(tmp_path) as one:
        with work_folder.work_folder(tmp_path) as other:
            assert one.exists() and other.exists() and one != other
        assert one.exists() and not other.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pid", "age", "stays"),
    [(NOBODY, 0.0, True), (NOBODY, OLD_SECONDS + 5, False), (os.getpid(), OLD_SECONDS + 5, True)],
    ids=["young", "old", "of a process that is there"],
)
def test_a_folder_of_an_older_headwater_goes_after_a_day_if_its_process_is_gone(
    tmp_path: Path, pid: int, age: float, stays: bool
) -> None:
    folder = left(tmp_path, pid, age)
    begun(tmp_path)
    assert folder.exists() == stays


def test_a_folder_that_is_taken_for_left_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[Path]()

    def first(lock: Any, _how: int) -> None:
        if not taken:
            taken.append(Path(lock.name).parent)
            shutil.rmtree(taken[0])

    monkeypatch.setattr(fcntl, "flock", first)
    with work_folder.work_folder(tmp_path) as folder:
        assert folder != taken[0] and (folder / LOCK).exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_comparison_whose_folder_was_removed_fails_even_if_something_has_made_it_again(
    tmp_path: Path, again: bool
) -> None:
    with work_folder.work_folder(tmp_path) as folder:
        work_folder.refuse_gone(folder)
        shutil.rmtree(folder)
        if again:
            folder.mkdir()
        with pytest.raises(StateError, match="not there any more"):
            work_folder.refuse_gone(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_for_want_of_the_folder_says_so_and_what_fails_otherwise_says_that(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="not there any more"), work_folder.work_folder(tmp_path) as folder:
        shutil.rmtree(folder)
        (folder / "x").read_bytes()
    with pytest.raises(FileNotFoundError), work_folder.work_folder(tmp_path) as folder:
        (folder / "x").read_bytes()


def test_a_sink_whose_comparison_lost_its_folder_is_not_called_equal(tmp_path: Path) -> None:
    class Robbed(Verifier):
        def __init__(self) -> None:
            self.failed, self.progress = dict[str, HeadwaterError](), lambda line: None
            self.pipeline: Any = SimpleNamespace(engine=SimpleNamespace(state_dir=str(tmp_path)), name="p")
            self.asked = Asked()

        def _typed(self, view: Any, holders: Any) -> Any:
            return view

        def _whole(self, view: Any, holders: Any, folder: Path, results: Any) -> dict[str, Keys]:
            shutil.rmtree(folder)
            return {}

    verifier = Robbed()
    holders: Any = [SimpleNamespace(sink="cache")]
    assert verifier._each(SimpleNamespace(name="v"), holders) == {}  # type: ignore[arg-type]
    assert isinstance(verifier.failed["cache"], StateError)


# -- what is in it -----------------------------------------------------------------------------------------------------

ROWS = [(str(number), digest(str(number).encode())) for number in range(200)]


@pytest.mark.parametrize("lost", ["folder", "bucket", "end of a bucket", "sizes"])
@pytest.mark.parametrize("of", [("wanted",), ("held",), ("wanted", "held")])
def test_a_side_of_which_anything_is_lost_equals_nothing(tmp_path: Path, lost: str, of: tuple[str, ...]) -> None:
    wanted, held = side(tmp_path / "wanted", ROWS), side(tmp_path / "held", ROWS)
    for name in of:
        folder = tmp_path / name
        if lost == "folder":
            shutil.rmtree(folder)
        elif lost == "bucket":
            (folder / "0002").unlink()
        elif lost == "sizes":
            (folder / SIZES).unlink()
        else:
            (folder / "0002").write_bytes((folder / "0002").read_bytes()[:-40])
    with pytest.raises(StateError, match="not there any more"):
        compare(Comparison("t"), wanted, held, lambda key: None)


def test_a_side_without_rows_equals_one_without_rows_that_another_process_has_written(tmp_path: Path) -> None:
    side(tmp_path / "held", [])
    result = Comparison("t")
    compare(result, side(tmp_path / "wanted", []), Side(tmp_path / "held", 4), lambda key: None)
    assert (result.equal, result.expected, result.compared) == (True, 0, 0)


def test_a_side_whose_folder_is_removed_while_it_is_written_is_not_begun_anew(tmp_path: Path) -> None:
    made = side(tmp_path / "wanted", ROWS)
    shutil.rmtree(tmp_path / "wanted")
    made.add(*ROWS[0])
    with pytest.raises(StateError, match="not there any more"):
        made.flush()


def test_keys_of_which_some_are_lost_are_not_taken_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUFFERED_BYTES", 64)
    keys = Keys(tmp_path / "keys")
    for number in range(20):
        keys.add(str(number))
    keys.path.unlink()
    keys.add("last" * 20)
    keys.flush()
    with pytest.raises(StateError, match="not there any more"):
        list(keys.pages(10))
    keys.path.unlink()
    with pytest.raises(StateError, match="not there any more"):
        list(keys.pages(10))
