"""What every kind of catalogue can do, and which kind an address is of."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sinks.iceberg.catalogues.rest import RestCatalogue
from sinks.iceberg.catalogues.sql import SqlCatalogue
from sinks.iceberg.place import Place

if TYPE_CHECKING:
    from pyiceberg.table import Table


class Catalogue(Protocol):
    """One kind of catalogue at one place."""

    @property
    def gap_seconds(self) -> float:
        """How long a view's name may lead nowhere while a promotion is under way; 0 where it never does."""
        ...

    def spark_properties(self) -> dict[str, str]:
        """Settings of Spark's catalogue, without those of the files."""
        ...

    def pyiceberg_properties(self) -> dict[str, str]:
        """Those of pyiceberg's."""
        ...

    def open(self, name: str, properties: dict[str, str]) -> AbstractContextManager[Any]:
        """The catalogue through pyiceberg, closed at the end; what it says in between is told in our words.

        Raises:
            SinkUnavailable: it does not answer (transient). SinkRefused: it refuses.
        """
        ...

    def swap(self, opened: Any, seen: Table, built: Table, aside: str) -> bool:
        """Give ``built`` the name of ``seen``, and that the name ``aside``; False, and nothing is changed, if somebody
        has come between.

        Raises:
            SinkRefused: ``aside`` is taken. SinkUnavailable: it does not answer (transient).
        """
        ...

    def begun(self, properties: dict[str, str]) -> bool:
        """Whether there can be tables in it: opening one that is new makes what it needs. Changes nothing."""
        ...

    def check(self, name: str, properties: dict[str, str]) -> None:
        """Look whether it answers and lets us in; changes nothing. Raises as ``open``."""
        ...


def catalogue_of(place: Place) -> Catalogue:
    """The kind of a place's catalogue.

    Raises:
        ConfigError: an address of a kind that is not known, or settings that are another kind's.
    """
    if place.catalog_uri.startswith(("http://", "https://")):
        return RestCatalogue(place)
    return SqlCatalogue(place)
