"""Which rows point at which: the database's foreign keys, with how many rows there are at each end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from connectors.postgres import Connection, explained
from connectors.tables.partitions import estimated_rows

# Of a partitioned table the constraint itself, not the copies of it that its partitions have.
FOREIGN_KEYS = """
SELECT n.nspname || '.' || c.relname, fn.nspname || '.' || fc.relname,
       (SELECT array_agg(a.attname::text ORDER BY k.nth) FROM unnest(con.conkey) WITH ORDINALITY AS k(number, nth)
        JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k.number),
       (SELECT array_agg(a.attname::text ORDER BY k.nth) FROM unnest(con.confkey) WITH ORDINALITY AS k(number, nth)
        JOIN pg_attribute a ON a.attrelid = con.confrelid AND a.attnum = k.number)
FROM pg_constraint con
JOIN pg_class c ON c.oid = con.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class fc ON fc.oid = con.confrelid JOIN pg_namespace fn ON fn.oid = fc.relnamespace
WHERE con.contype = 'f' AND con.conparentid = 0 AND n.nspname || '.' || c.relname = ANY(%s)
ORDER BY 1, con.conkey, 2
"""

# The share of rows that the most frequent value has; only of columns that the role may read.
COMMONEST = """
SELECT schemaname || '.' || tablename, attname, max(most_common_freqs[1])
FROM pg_stats WHERE schemaname || '.' || tablename = ANY(%s) AND most_common_freqs IS NOT NULL GROUP BY 1, 2
"""


@dataclass(frozen=True)
class ForeignKey:
    """Rows of one table that name rows of another.

    Attributes:
        table: ``schema.table`` that points.
        target: ``schema.table`` that is pointed at.
        columns: of ``table``, in the constraint's order.
        keys: of ``target``, to which these are equal.
        period: the last column is a period that those of ``target`` cover.
    """

    table: str
    target: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    period: bool = False

    @property
    def forward(self) -> dict[str, str]:
        """``on`` of a reference: {column of the row that points: column of the one that is pointed at}."""
        return dict(zip(self.columns, self.keys, strict=True))

    @property
    def backward(self) -> dict[str, str]:
        """``on`` of children: {column of the row that is pointed at: column of those that point}."""
        return dict(zip(self.keys, self.columns, strict=True))


@dataclass(frozen=True)
class Sizes:
    """How large tables are, as far as the server's statistics know; read without touching a row.

    Attributes:
        rows: ``schema.table`` -> about how many rows.
        commonest: (``schema.table``, column) -> the share of rows that the most frequent value has.
    """

    rows: Mapping[str, int]
    commonest: Mapping[tuple[str, str], float]

    def fan_out(self, key: ForeignKey) -> float | None:
        """About how many rows point at the row that most point at, or at an average one; None if nobody knows."""
        pointing, pointed_at = self.rows.get(key.table, 0), self.rows.get(key.target, 0)
        if not pointing or not pointed_at:
            return None
        shares = [self.commonest[key.table, name] for name in key.columns if (key.table, name) in self.commonest]
        return max(pointing / pointed_at, min(shares) * pointing if shares else 0.0)


def read_foreign_keys(connection: Connection, tables: Collection[str]) -> list[ForeignKey]:
    """The foreign keys of some tables, to whatever tables.

    Args:
        connection: any role's; catalogues are readable by all.
        tables: ``schema.table`` of those that point.

    Raises:
        SourceUnavailable, SourceError: see ``connectors.postgres``.
    """
    with explained("reading the foreign keys"):
        found = connection.execute(FOREIGN_KEYS, [sorted(tables)]).fetchall()
    # Two constraints may say the same.
    return list(dict.fromkeys(ForeignKey(str(a), str(b), tuple(columns), tuple(keys)) for a, b, columns, keys in found))


def read_sizes(connection: Connection, tables: Collection[str]) -> Sizes:
    """About how large some tables are; arguments and errors as ``read_foreign_keys``."""
    rows = estimated_rows(connection, tables)
    with explained("reading the tables' statistics"):
        found = connection.execute(COMMONEST, [sorted(tables)]).fetchall()
    return Sizes(rows, {(str(table), str(column)): float(share) for table, column, share in found})
