"""How many documents are asked for at once."""

from __future__ import annotations

import pytest

from cdc.paging import BYTES, FIRST, MOST_BYTES, PageSize, parts

MB = 1 << 20


def read(size: PageSize, documents: list[int]) -> list[int]:
    """Bytes of each page, of documents of these sizes."""
    pages = []
    for part in parts(documents, size):
        pages.append(sum(part))
        size.read(part)
    return pages


def test_small_ones_come_by_thousands_soon() -> None:
    size = PageSize(5000)
    counts = []
    for _ in range(15):
        counts.append(size.count)
        size.read([500] * size.count)
    assert counts == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 5000, 5000]


def test_large_ones_come_a_few_at_a_time_from_the_first_page_on() -> None:
    """Fifty of 20 MB were asked for before anything was known of them, each time anew."""
    assert max(read(PageSize(5000), [2 * MB] * 1000)) <= BYTES
    assert set(read(PageSize(5000), [20 * MB] * 100)) == {20 * MB}


def test_large_ones_among_small_ones_bound_the_pages_after_them() -> None:
    """Half of them are large: by the mean alone a page of nothing but large ones would be a gigabyte."""
    rare = [*([200] * 400), 4 * MB] * 20
    pages = read(PageSize(5000), [*rare, *([4 * MB] * 100)])
    assert max(pages) <= 2 * MOST_BYTES


def test_one_large_one_does_not_keep_pages_small_for_good() -> None:
    size = PageSize(5000)
    size.read([64 * MB])
    assert size.count == 1
    for _ in range(400):
        size.read([500] * size.count)
    assert size.count == 5000


def test_documents_that_are_nothing_and_pages_without_any() -> None:
    size = PageSize(1000)
    size.read([])
    assert size.count == FIRST
    size.read([0, 0])
    assert size.count == 2 * FIRST
    assert [len(part) for part in parts([0] * 120, PageSize(50, 50))] == [50, 50, 20]
    assert list(parts([], PageSize(50))) == []


def test_what_is_asked_without_documents_begins_with_all() -> None:
    assert [len(part) for part in parts([0] * 1200, PageSize(500, 500))] == [500, 500, 200]


class Full(Exception):
    """Of a server that holds so many documents, and no more."""


def test_a_page_that_is_too_much_is_asked_for_again_by_halves() -> None:
    size, tried = PageSize(500, 500), list[int]()

    def ask(count: int) -> str:
        tried.append(count)
        if count > 100:
            raise Full
        return "answer"

    assert size.asked(ask, lambda error: isinstance(error, Full)) == "answer"
    assert tried == [500, 250, 125, 62] and size.count == 62


@pytest.mark.parametrize(("most", "bears", "times"), [(500, False, 1), (4, True, 3)])
def test_an_error_that_is_not_for_its_size_is_one_at_once(most: int, bears: bool, times: int) -> None:
    """One of a single document is."""
    tried = list[int]()

    def ask(count: int) -> None:
        tried.append(count)
        raise Full

    with pytest.raises(Full):
        PageSize(most, most).asked(ask, lambda _: bears)
    assert len(tried) == times
