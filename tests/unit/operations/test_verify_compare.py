"""Comparing by buckets of digests on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.catalogue import Column, Table
from cdc.errors import StateError
from cdc.keys import stray_id, stray_name
from cdc.timed import Kind, MatchView, TimedView, WindowView
from operations.verify.buckets import FEWEST, MOST, Keys, Side, bucket_count
from operations.verify.comparison import NAMED, Comparison, compare, marked, unmarked
from operations.verify.expected_file import Wanted, reading
from truth.digest import digest
from truth.expected import Expected


def side(folder: Path, digests: list[tuple[str, bytes]], buckets: int = 4) -> Side:
    made = Side(folder, buckets)
    for key, value in digests:
        made.add(key, value)
    made.flush()
    return made


def compared(folder: Path, wanted: list[tuple[str, bytes]], held: list[tuple[str, bytes]], **how: bool) -> Comparison:
    result, named = Comparison("t"), list[str]()
    compare(result, side(folder / "wanted", wanted), side(folder / "held", held), named.append, **how)
    assert len(named) == result.differences
    return result


def test_what_is_missing_extra_and_changed_is_named(tmp_path: Path) -> None:
    wanted = [(key, digest({"id": key, "v": 1})) for key in "abc"]
    held = [("a", digest(b'{"v":1,"id":"a"}')), ("b", digest(b'{"id":"b","v":2}')), ("x", digest(b"{}"))]
    result = compared(tmp_path, wanted, held)
    assert (result.changed, result.extra, result.missing) == (["b"], ["x"], ["c"])
    assert (result.expected, result.compared, result.differences, result.equal) == (3, 3, 3, False)


def test_a_key_that_is_read_twice_is_a_defect_only_where_it_can_not_happen(tmp_path: Path) -> None:
    one = [("a", digest(b"{}"))]
    assert compared(tmp_path / "busy", one, one * 2).equal
    assert compared(tmp_path / "table", one, one * 2, unique=True).changed == ["a"]


def test_what_is_expected_twice_is_told_and_not_taken_for_one(tmp_path: Path) -> None:
    two = [("a|1", digest({"v": 1})), ("b", digest({})), ("a|1", digest({"v": 2}))]
    with pytest.raises(StateError, match=r"view t: two documents must have the id a\|1"):
        compared(tmp_path / "rows", two, two[:2])
    assert compared(tmp_path / "matches", two, two[1:], repeats=True).equal


def windows(kind: type[TimedView], **more: object) -> TimedView:
    table = Table("public", "t", (Column("id", "integer", "int4"),), ("id",))
    return kind("w", table, ("id",), (), state={"n": "int"}, **more)  # type: ignore[arg-type]


def test_windows_of_one_id_are_told_and_matches_are_not(tmp_path: Path) -> None:
    found = [Expected("a", b"{}", None, unsure=True), *(Expected("a", b"{}", {"n": n}) for n in (1, 2))]
    nobody = Expected("a", b"{}", None, unsure=True)
    with reading(tmp_path / "windows") as told:
        filling = told.fill(windows(WindowView), found, ["document"])
        assert [key for key, _ in [next(filling)]] == ["a"]
        with pytest.raises(StateError, match="view w: two documents must have the id a"):
            next(filling)
    with reading(tmp_path / "matches") as told:
        last = list(told.fill(windows(MatchView, first=Kind("true", "id")), [*found, nobody], ["document"]))[-1]
        assert told.wanted(["a"], "document") == {"a": Wanted(last[1]["document"], unsure=False)}


def test_what_is_no_json_differs_from_every_document_and_is_no_error() -> None:
    odd = [b"", b"{", b'{"aid":', b"\xff", b'{"a":NaN}', b'{"a":-Infinity}', b"[" * 100_000, b'{"a":1}x', {1: object()}]
    found = [digest(one) for one in odd]
    plain = [digest(one) for one in (b"{}", b"null", b'{"a":null}', b'""', b"[]")]
    assert len(set(found)) == len(found) and not set(found) & set(plain)


def test_names_that_are_no_text_go_through_the_files_and_are_shown_as_text(tmp_path: Path) -> None:
    strays = [stray_id(name) for name in (b"\xff", b"a\xc3", b"plain", b"", b"\xed\xa0\x80")]
    result = compared(tmp_path, [("plain", digest(b"{}"))], [(key, digest(b"{}")) for key in [*strays, "plain"]])
    assert result.differences == len(strays) and not result.missing
    assert sorted(result.extra) == sorted(["\\xff", "a\\xc3", "plain", "", "\\xed\\xa0\\x80"])
    assert json.dumps(result.extra).isascii() and "".join(result.extra).encode()
    keys = Keys(tmp_path / "strays")
    for key in strays:
        keys.add(marked("extra", key))
    keys.flush()
    assert [unmarked(key)[1] for page in keys.pages(2) for key in page] == strays
    assert [stray_name(key) for key in strays] == [b"\xff", b"a\xc3", b"plain", b"", b"\xed\xa0\x80"]


@pytest.mark.parametrize("buckets", [1, 7, 64])
def test_sides_give_back_what_they_took(tmp_path: Path, buckets: int) -> None:
    digests = {f"k{number}|é\0": digest(str(number).encode()) for number in range(30_000)}
    made = side(tmp_path, list(digests.items()), buckets)
    assert {key: value for at in range(buckets) for key, value in made.read(at)} == digests
    assert all(list(made.read(at)) for at in range(buckets))


def test_many_differences_are_counted_and_few_named(tmp_path: Path) -> None:
    result = compared(tmp_path, [(str(number), digest(b"1")) for number in range(500)], [])
    assert (result.differences, len(result.missing)) == (500, NAMED)


def test_differing_keys_wait_on_disk(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    assert list(keys.pages(10)) == []
    for number in range(25):
        keys.add(f"{number}", digest(str(number).encode()) if number % 2 else b"")
    keys.flush()
    pages = list(keys.pages(10))
    assert [len(page) for page in pages] == [10, 10, 5]
    assert pages[2] == {str(n): digest(str(n).encode()) if n % 2 else bytes(16) for n in range(20, 25)}


def test_buckets_grow_with_the_table() -> None:
    assert [bucket_count(rows) for rows in (0, 1_000_000, 10**9)] == [FEWEST, 50, MOST]
