"""How many documents are asked for at once."""

from __future__ import annotations

from sinks.paging import BYTES, FIRST, MOST_BYTES, PageSize, parts

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
    for _ in range(9):
        counts.append(size.count)
        size.read([500] * size.count)
    assert counts == [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]


def test_large_ones_come_a_few_at_a_time_from_the_first_page_on() -> None:
    pages = read(PageSize(5000), [2 * MB] * 1000)
    assert pages[0] == FIRST * 2 * MB and max(pages[1:]) <= BYTES


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
    assert [len(part) for part in parts([0] * 120, PageSize(50))] == [50, 50, 20]
    assert list(parts([], PageSize(50))) == []


def test_what_is_asked_without_documents_begins_with_all() -> None:
    assert [len(part) for part in parts([0] * 1200, PageSize(500, 500))] == [500, 500, 200]
