"""A warehouse's tables as a target: looked at, promoted, dropped. Spark writes to them (``spark.warehouse.merge``)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from orjson import loads

from cdc.errors import SinkRefused
from cdc.keys import split_id
from sinks.contract import UNREADABLE, Held
from sinks.iceberg import catalogue
from sinks.iceberg.place import Place
from sinks.iceberg.rows import VERSION_COLUMN, held_documents, held_keys, held_rows

if TYPE_CHECKING:
    import pyarrow as pa

# Key types by which Iceberg's reader can look a row up; for others the whole table is read.
LOOKED_UP = frozenset(("int2", "int4", "int8", "text", "varchar", "uuid"))


class IcebergTarget:
    """One generation's tables.

    Args:
        config: plain data from ``sinks.configure``: ``catalog``, those of a ``Place``, and for each of ``targets``
            its ``generation`` and its ``key``: [column, Postgres type] in the key's order, needed to look rows up;
            ``documents`` says that its rows are compared as other sinks' documents. ``owner`` is ``<pipeline>/<sink>``:
            tables of others are not there, and stay.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._catalog, self._owner = str(config["catalog"]), str(config.get("owner", ""))
        self._place = Place.of_config(config)
        self._targets: Mapping[str, Mapping[str, Any]] = config["targets"]

    def get(self, target: str, keys: Sequence[str], at_once: int = 1) -> dict[str, Held]:
        """See the contract; of a key that the table has several times all rows, and their largest version. Rows come
        in Arrow's batches, however many are asked for."""
        found: dict[str, list[Held]] = {}
        asked = set(keys)
        for batch in self.batches(target, keys):
            for held in self._held(target, batch):
                if held.key in asked:  # a batch may have all others of the table too
                    found.setdefault(held.key, []).append(held)
        return {key: _one(found[key]) for key in keys if key in found}

    def versions(self, target: str, keys: Sequence[str]) -> dict[str, int]:
        """See the contract: a deleted row is not remembered. Only the columns of key and version are read."""
        found: dict[str, int] = {}
        asked, key = set(keys), self._key(target)
        for batch in self.batches(target, keys, (*key, VERSION_COLUMN)):
            for held in held_rows(batch, key):
                if held.key in asked and held.version != UNREADABLE:
                    found[held.key] = max(held.version, found.get(held.key, held.version))
        return found

    def snapshot(self, target: str) -> int | None:
        """Which state of its table readers see now; None before the first write.

        Raises:
            SinkRefused: no such table. SinkUnavailable: the catalogue does not open (transient).
        """
        with catalogue.open_catalog(self._place, self._catalog) as opened:
            found = catalogue.load_table(opened, self._place, target, self._number(target)).current_snapshot()
        return None if found is None else found.snapshot_id

    def scan(self, target: str) -> Iterator[Held]:
        """See the contract; all from one snapshot. A key that the table has twice comes twice."""
        for batch in catalogue.scan(self._place, self._catalog, target, generation=self._number(target)):
            yield from self._held(target, batch)

    def sample(self, target: str, count: int, seed: int) -> Iterator[Held]:
        """See the contract; reads the key's columns of the whole table, which Parquet has side by side."""
        key = self._key(target)
        draw = random.Random(seed)  # noqa: S311 (a sample, not a secret)
        batches = catalogue.scan(self._place, self._catalog, target, key, self._number(target))
        drawn = ((draw.random(), identity) for identity in held_keys(batches, key))
        chosen = [identity for _, identity in heapq.nsmallest(count, drawn)]
        yield from self.get(target, chosen).values()

    def batches(self, target: str, keys: Sequence[str], columns: Sequence[str] = ("*",)) -> Iterator[pa.RecordBatch]:
        """Batches of the table that hold the rows of these keys and perhaps others.

        Raises:
            SinkRefused: no such table. SinkUnavailable: the catalogue does not open (transient).
        """
        asked = _filter(self._targets[target]["key"], keys)
        if asked is None:
            return
        with catalogue.open_catalog(self._place, self._catalog) as opened:
            table = catalogue.load_table(opened, self._place, target, self._number(target))
            yield from table.scan(asked, tuple(columns)).to_arrow_batch_reader()

    def promote(self, target: str, old: int) -> None:
        """See the contract."""
        catalogue.promote_table(self._place, self._catalog, target, self._number(target), old, self._owner)

    def settle(self, target: str) -> None:
        """See the contract: nobody waits."""

    def living(self, target: str) -> int | None:
        """See the contract."""
        return catalogue.living(self._place, self._catalog, target, self._owner)

    def claimed(self, target: str) -> int | None:
        """See the contract."""
        return catalogue.claimed(self._place, self._catalog, target, self._number(target), self._owner)

    def oldest_claim(self, target: str) -> int | None:
        """See the contract: a restored catalogue has that of its copy; a table that was rolled back has the newest."""
        return self.claimed(target)

    def there(self, target: str) -> bool:
        """See the contract."""
        return catalogue.there(self._place, self._catalog, target, self._number(target), self._owner)

    def numbered(self, targets: Collection[str]) -> dict[int, set[str]]:
        """See the contract."""
        found = dict[int, set[str]]()
        with catalogue.open_catalog(self._place, self._catalog) as opened:
            for name in catalogue.table_names(opened, self._place):
                view, _, number = name.rpartition("__g")
                if view in targets and number.isdecimal():
                    found.setdefault(int(number), set()).add(view)
        return found

    def refresh(self, target: str) -> None:
        """See the contract: a commit is there for the next reader that opens the table."""

    def size(self, target: str) -> int:
        """See the contract: the data files of the newest snapshot."""
        with catalogue.open_catalog(self._place, self._catalog) as opened:
            try:
                table = catalogue.load_table(opened, self._place, target, self._number(target))
            except SinkRefused:
                return 0
            snapshot = table.current_snapshot()
        told = snapshot.summary["total-files-size"] if snapshot and snapshot.summary else None
        return int(told or 0)

    def drop(self, target: str) -> None:
        """See the contract."""
        catalogue.drop_table(self._place, self._catalog, target, self._number(target), self._owner)

    def close(self) -> None:
        """Nothing is kept open between two calls."""

    def _number(self, target: str) -> int:
        return int(self._targets[target]["generation"])

    def _held(self, target: str, batch: pa.RecordBatch) -> Iterator[Held]:
        read = held_documents if self._targets[target].get("documents") else held_rows
        return read(batch, self._key(target))

    def _key(self, target: str) -> list[str]:
        return [name for name, _ in self._targets[target]["key"]]


def _one(held: Sequence[Held]) -> Held:
    """All rows of a key as one."""
    if len(held) == 1:
        return held[0]
    rows = [
        row for one in held for row in (one.document if isinstance(one.document, tuple) else (loads(one.document),))
    ]
    return Held(held[0].key, max(one.version for one in held), tuple(rows))


def _filter(key: Sequence[tuple[str, str]], keys: Sequence[str]) -> Any:
    """An expression that lets the rows of these keys through, perhaps others too; None if no row can have them."""
    from pyiceberg.expressions import AlwaysTrue, And, In, IsNull, Or

    split = [texts for one in keys if len(texts := split_id(one, len(key))) == len(key)]
    asked: Any = AlwaysTrue()
    for at, (name, kind) in enumerate(key):
        if kind not in LOOKED_UP:
            continue
        values: set[Any] = {texts[at] for texts in split}
        if kind.startswith("int"):
            if not all(text.lstrip("-").isdecimal() for text in values):
                continue  # somebody else has put in a row without a key
            values = {number for number in map(int, values) if -(1 << 63) <= number < 1 << 63}
        if not values:
            return None
        named = cast(Any, In)(name, values)  # its annotations describe the serialised form
        # A row without a key that somebody has put in has the same id as the text "null".
        asked = And(asked, Or(named, cast(Any, IsNull)(name)) if "null" in values else named)
    return asked
