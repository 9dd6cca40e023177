"""A comparison's folder is its own; where what it has written is gone, nothing is called equal."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.errors import HeadwaterError, StateError
from operations.verify import buckets, verifier, work_folder
from operations.verify.buckets import SIZES, Keys, Side
from operations.verify.comparison import Comparison, compare
from operations.verify.verifier import Asked, Verifier
from tests.support.killed import killed_in_a_fork
from tests.support.trees import node, table
from tests.unit.operations.test_verify_compare import side
from truth.digest import digest
from truth.versions import history


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
            self.asked, self.tables = Asked(), SimpleNamespace(refuse_altered=lambda _: None)  # type: ignore[assignment]

        def _typed(self, view: Any, holders: Any) -> Any:
            return view

        def _whole(self, view: Any, holders: Any, folder: Path, results: Any) -> dict[str, Keys]:
            shutil.rmtree(folder)
            return {}

    robbed = Robbed()
    holders: Any = [SimpleNamespace(sink="cache")]
    assert robbed._each(SimpleNamespace(name="v"), holders) == {}  # type: ignore[arg-type]
    assert isinstance(robbed.failed["cache"], StateError)


ORDER_PRICES = node(
    table("orders", "id", id="int4", product="int4", at="timestamptz"),
    refs=(node(table("products", "id", id="int4"), "product", "ref", [("product", "id")], as_of="at"),),
)


def test_a_comparison_that_was_killed_leaves_nothing_after_the_next_not_even_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's size, and as much again for each window, stayed in /tmp at each kill."""

    class Comparing(Verifier):
        def __init__(self) -> None:
            self.failed, self.progress = dict[str, HeadwaterError](), lambda line: None
            self.pipeline: Any = SimpleNamespace(
                engine=SimpleNamespace(state_dir=str(tmp_path / "state")), name="p", source=None
            )
            self.asked, self.source_rows = Asked(), dict[str, int]()
            self.tables: Any = SimpleNamespace(refuse_altered=lambda _: None)

        def _typed(self, view: Any, holders: Any) -> Any:
            return view

        def _looked_again(self, *_: Any) -> None: ...

    def read() -> list[Any]:
        if dying:
            os.kill(os.getpid(), signal.SIGKILL)
        return []

    def events(*_: Any, folder: Path | None = None, **__: Any) -> Iterator[Any]:
        with history(ORDER_PRICES, defaultdict(set), read, folder):
            yield from ()

    dying, rows = True, SimpleNamespace(qualified="s.t")
    view = SimpleNamespace(name="v", table=rows, where=None, event_types=(), outlives_rows=False)
    holders: Any = [SimpleNamespace(sink="cache", warehouse=False, form=lambda _view: "document")]
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(verifier, "snapshot", lambda _source: nullcontext())
    monkeypatch.setattr(verifier, "rows_of", lambda *_: 0)
    monkeypatch.setattr(verifier, "needs_spark", lambda _view: False)
    monkeypatch.setattr(verifier, "beside", lambda jobs, apart: nullcontext(lambda: [None]))
    monkeypatch.setattr(verifier, "logged", lambda *_: None)
    monkeypatch.setattr(verifier, "expected", events)
    monkeypatch.setattr(verifier, "compare", lambda *_, **__: None)
    monkeypatch.setattr(verifier, "may_repeat", lambda _view: False)
    killed_in_a_fork(lambda: Comparing()._each(view, holders))  # type: ignore[arg-type]
    (left,) = (tmp_path / "state" / "p").iterdir()
    assert any(one.name.startswith("headwater-truth-") for one in left.iterdir()), "where the operator gave room"
    dying = False
    assert Comparing()._each(view, holders).keys() == {"cache"}  # type: ignore[arg-type]
    assert list((tmp_path / "state" / "p").iterdir()) == list((tmp_path / "tmp").iterdir()) == []


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
