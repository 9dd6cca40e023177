"""How many documents, rows or entries are asked for at once: an answer stays near a size that both ends can hold,
whatever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# An answer that is read in one go, and held several times on its way (the server's buffer, the client's, ours).
BYTES = 4 << 20
# As many of the largest that was seen lately fit into this. Documents come in no order of size: after 5,000 small ones
# a page of large ones (2 MB of a parent with all its children) was 10 GB, and the server gone.
MOST_BYTES = 64 << 20
# Nothing is known of them yet: fifty of 20 MB were a gigabyte, more than a search server has, each time anew. A few
# more requests, each with twice as many, are all that it costs where they are small.
FIRST = 1
# One large document among millions of small ones must not keep pages small for good.
_FORGETS = 0.97


class PageSize:
    """The count for the next page, by what the last ones held.

    Args:
        most: documents, whatever their size.
        first: how many the first page has, of which nothing is known; more only of what is small for certain.
        around: about how many bytes a page is to have.

    Attributes:
        count: documents for the next page.
    """

    def __init__(self, most: int, first: int = FIRST, *, around: int = BYTES) -> None:
        self._most, self._around, self._largest = most, around, 0.0
        self.count = min(first, most)

    def read(self, sizes: Iterable[int]) -> None:
        """A page was read, of documents of these sizes in bytes; none tells nothing."""
        found = list(sizes)
        if found:
            self._largest = max(*found, self._largest * _FORGETS, 1)
            mean = max(1, sum(found) // len(found))
            fit = min(self._around // mean, int(MOST_BYTES / self._largest))
            self.count = max(1, min(self._most, 2 * self.count, fit))

    def asked(self, ask: Callable[[int], T], too_much: Callable[[Exception], bool]) -> T:
        """The next page's answer; where the server does not bear one so large, that of a smaller page.

        Of such a page no size is learned, and the same one again would be too much again, for ever.

        Args:
            ask: is given how many documents to ask for, and asks.
            too_much: whether an error may be for the answer's size.

        Raises:
            Exception: of ``ask``, where it is another one, or the page is of one document.
        """
        while True:
            try:
                return ask(self.count)
            except Exception as error:
                if self.count == 1 or not too_much(error):
                    raise
                self.halve()

    def halve(self) -> None:
        """The last page was too much for somebody."""
        self.count = max(1, self.count // 2)


def parts(keys: Sequence[Any], size: PageSize) -> Iterator[Sequence[Any]]:
    """Keys, so many at a time as ``size`` says when the next ones are due."""
    start = 0
    while start < len(keys):
        part = keys[start : start + size.count]
        start += len(part)
        yield part
