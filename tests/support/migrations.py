"""Migrations of the table ``things`` of ``tests/support/migrating.py``: the SQL, and the shape that it leaves.

docs/schema-changes.md is made of this list by the deciding function (docs/schema_changes.py), and each of them is done
to a real pipeline by tests/integration/test_schema_changes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc.catalogue import Column, Table
from cdc.shapes import Shape

COLUMNS = (
    Column("id", "integer", "int4", nullable=False, ordinal=1),
    Column("a", "character varying(8)", "varchar", ordinal=2),
    Column("n", "integer", "int4", ordinal=3),
    Column("price", "numeric(8,2)", "numeric", 8, 2, ordinal=4),
    Column("at", "timestamp without time zone", "timestamp", ordinal=5),
    Column("mood", "mood", "mood", enum_values=("sad", "ok"), ordinal=6),
    Column("code", "text", "text", ordinal=7),
    Column("gone", "text", "text", ordinal=8),
    Column("spare", "text", "text", ordinal=9),
)
BEFORE = Shape(
    Table("public", "things", COLUMNS, ("id",)), 0, 1, "f", (2, 8), written=tuple((c.ordinal, "7") for c in COLUMNS)
)
Made = Callable[[Shape], Shape]


@dataclass(frozen=True)
class Migration:
    """One migration.

    Attributes:
        name: in words.
        sql: what is done.
        made: the shape that it leaves.
        undo: what is done afterwards, before the next migration.
    """

    name: str
    sql: str
    made: Made
    undo: str = ""

    @property
    def changes(self) -> bool:
        """Whether columns change that are captured."""
        return not self.made(BEFORE).same_as(BEFORE)


def _columns(shape: Shape, *columns: Column, **more: object) -> Shape:
    return replace(shape, table=replace(shape.table, columns=columns), since=100, **more)  # type: ignore[arg-type]


def _add(column: Column, *, filled: bool = False) -> Made:
    def made(shape: Shape) -> Shape:
        return _columns(
            shape, *shape.table.columns, column, filled=(*shape.filled, *((column.ordinal,) if filled else ()))
        )

    return made


def _drop(name: str) -> Made:
    return lambda shape: _columns(shape, *(c for c in shape.table.columns if c.name != name))


def _alter(column: str, /, **changes: object) -> Made:
    def made(shape: Shape) -> Shape:
        files = {} if "type_name" not in changes or changes.get("base_type") == "text" else {"files": "g"}
        columns = (replace(c, **changes) if c.name == column else c for c in shape.table.columns)  # type: ignore[arg-type]
        return _columns(shape, *columns, **files)

    return made


def _using(column: str) -> Made:
    def made(shape: Shape) -> Shape:
        number = shape.table.by_name[column].ordinal
        return replace(
            shape, since=100, files="g", written=tuple((n, "8" if n == number else at) for n, at in shape.written)
        )

    return made


def _again(shape: Shape) -> Shape:
    return _add(Column("code", "integer", "int4", ordinal=14))(_drop("code")(shape))


MIGRATIONS = (
    Migration(
        "add a nullable column",
        "ALTER TABLE things ADD COLUMN note text",
        _add(Column("note", "text", "text", ordinal=10)),
    ),
    Migration(
        "add a column with a constant default",
        "ALTER TABLE things ADD COLUMN stars int DEFAULT 3",
        _add(Column("stars", "integer", "int4", ordinal=11), filled=True),
    ),
    Migration(
        "add a column with a volatile default",
        "ALTER TABLE things ADD COLUMN token uuid DEFAULT gen_random_uuid()",
        _add(Column("token", "uuid", "uuid", ordinal=12), filled=True),
    ),
    Migration("drop a column", "ALTER TABLE things DROP COLUMN gone", _drop("gone")),
    Migration(
        "varchar(8) to text",
        "ALTER TABLE things ALTER a TYPE text",
        _alter("a", type_name="text", base_type="text"),
    ),
    Migration("rename a column", "ALTER TABLE things RENAME COLUMN a TO label", _alter("a", name="label")),
    Migration(
        "integer to bigint",
        "ALTER TABLE things ALTER n TYPE bigint",
        _alter("n", type_name="bigint", base_type="int8"),
    ),
    Migration(
        "numeric(8,2) to numeric(12,4)",
        "ALTER TABLE things ALTER price TYPE numeric(12,4)",
        _alter("price", type_name="numeric(12,4)", precision=12, scale=4),
    ),
    Migration(
        "text to integer",
        "ALTER TABLE things ALTER code TYPE integer USING code::integer",
        _alter("code", type_name="integer", base_type="int4"),
    ),
    Migration(
        "timestamp to timestamptz",
        "ALTER TABLE things ALTER at TYPE timestamptz USING at AT TIME ZONE 'UTC'",
        _alter("at", type_name="timestamp with time zone", base_type="timestamptz"),
    ),
    Migration(
        "the type that it is, with USING",
        "ALTER TABLE things ALTER spare TYPE text USING lower(spare)",
        _using("spare"),
    ),
    Migration(
        "a new label of an enum",
        "ALTER TYPE mood ADD VALUE 'happy'",
        _alter("mood", enum_values=("sad", "ok", "happy")),
    ),
    Migration(
        "another name for a label",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'",
        _alter("mood", enum_values=("low", "ok")),
    ),
    Migration(
        "drop a column and add another one under its name",
        "ALTER TABLE things DROP COLUMN code; ALTER TABLE things ADD COLUMN code integer",
        _again,
    ),
    Migration(
        "NOT NULL, a default, a CHECK",
        "ALTER TABLE things ALTER spare SET DEFAULT 'y', ADD CHECK (n IS NULL OR n > -1)",
        lambda shape: shape,
    ),
    Migration(
        "add a generated column",
        "ALTER TABLE things ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED",
        lambda shape: shape,
        # While it is there Debezium 3.7 can't read the table again under a writer: docs/schema-changes.md.
        "ALTER TABLE things DROP COLUMN twice",
    ),
)
