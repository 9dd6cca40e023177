"""Names of the pipeline file looked up in the source's catalogue; errors name the place and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError
from cdc.gather import Gathering
from cdc.join.comparable import COLLATED
from cdc.pipeline import Pipeline
from cdc.sql_names import sql_name, sql_table
from cdc.types import supported, unsupported

Path = tuple[str | int, ...]
# Spark SQL types of columns that say when something was.
MOMENTS = ("timestamp", "timestamp_ntz")
# Columns that a message lists when no name is like the one that was written.
MAX_SHOWN = 20
DETERMINISTIC = (
    'ALTER TABLE {table} ALTER COLUMN {column} TYPE text COLLATE "C" (or another deterministic collation; foreign keys'
    " that point at it must be dropped before, and their columns changed as well)"
)


def find_table(pipeline: Pipeline, catalogue: Catalogue, name: str, path: Path, where: str = "") -> Table:
    """The captured table called ``schema.table``, or ``table`` if only one schema has it.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        name: as in the file.
        path: where it stands there.
        where: what the message begins with, after the place.

    Raises:
        ConfigError: none or several.
    """
    if name in catalogue.tables:  # of thousands of tables not each is looked at for each name
        return catalogue.tables[name]
    tables = list(catalogue.tables.values())
    found = [t for t in tables if t.qualified == name] or [t for t in tables if t.name == name]
    # A generation that goes on with a table that is gone was made with it: another one may have the name now.
    found = [t for t in found if t.qualified in catalogue.gone] or found
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(sorted(table.qualified for table in found))
        raise error(pipeline, path, f"{where}{name} is ambiguous", f"write {choices}")
    names = [table.qualified for table in tables] + [table.name for table in tables]
    close, add = near(name, names), "add it to source.tables"
    raise error(pipeline, path, f"{where}{name} is not a captured table", f"{close} If not, {add}" if close else add)


def known(pipeline: Pipeline, table: Table, name: str, path: Path, where: str = "") -> None:
    """Refuse a column that a table has not, or that can't be in a view.

    Raises:
        ConfigError: so it is.
    """
    now = present(table, name)
    if now != name:
        what = f"{where}{table.qualified} has no column {name} any more: it was renamed to {now}"
        raise error(pipeline, path, what, f"write {now}")
    if name in table.generated:
        what = f"{where}{table.qualified}.{name} is a generated column, and those are not captured"
        raise error(pipeline, path, what, "leave it out; `fields` can compute the same from the columns that are")
    if name not in table.by_name:
        fix = near(name, table.by_name) or f"its columns are {', '.join([*table.by_name][:MAX_SHOWN])}"
        raise error(pipeline, path, f"{where}{table.qualified} has no column {name}", fix)
    if (reason := unsupported(table.by_name[name])) is not None:
        raise error(pipeline, path, f"{where}{table.qualified}.{name} can't be in a view: {reason}", "leave it out")


def present(table: Table, name: str) -> str:
    """What a column is called now, if it was renamed and nothing else has its former name."""
    return name if name in table.by_name else dict(table.renamed).get(name, name)


def keyed(pipeline: Pipeline, table: Table, path: Path, where: str = "") -> None:
    """Refuse a table whose rows can't be told apart.

    Raises:
        ConfigError: no primary key, or one that can't be used.
    """
    if not table.primary_key:
        raise error(
            pipeline,
            path,
            f"{where}{table.qualified} has no primary key, so its changes can't be told apart",
            f"ALTER TABLE {sql_table(table.qualified)} ADD PRIMARY KEY (…), "
            "or REPLICA IDENTITY USING INDEX of a unique index (a key that is DEFERRABLE counts as none)",
        )
    for name in table.primary_key:
        if name in table.generated:
            what = f"{where}{table.qualified}'s key column {name} is a generated column, and those are not captured"
            raise error(pipeline, path, what, "use another key")
        if (reason := unsupported(table.by_name[name])) is not None:
            raise error(pipeline, path, f"{where}{table.qualified}'s key column {name}: {reason}", "use another key")
        if table.by_name[name].collated:
            what = f"{where}{table.qualified}'s key column {name}: {COLLATED}"
            fix = DETERMINISTIC.format(table=sql_table(table.qualified), column=sql_name(name))
            raise error(pipeline, path, what, fix)


def columns_of(
    pipeline: Pipeline,
    table: Table,
    picks: tuple[tuple[str, str], ...],
    path: Path,
    where: str = "",
    taken: Sequence[str] = (),
) -> tuple[tuple[str, str], ...]:
    """The chosen columns, or else all that can be in a view and whose name is not taken.

    A column that was renamed since the file was written goes on under the name that the file knows: readers of the
    documents were promised that.

    Args:
        pipeline: the loaded file.
        table: whose columns they are.
        picks: (column, name in the document) of the file.
        path: where they stand there.
        where: what the message begins with, after the place.
        taken: names of refs, children and aggregates beside them: a row takes the place of the column that names it.

    Raises:
        ConfigError: columns are not there; all of them are named.
    """
    found = Gathering()
    picks = tuple((present(table, column), out) for column, out in picks)
    for index, (column, _) in enumerate(picks):
        with found.step():
            known(pipeline, table, column, (*path, index), where)
    found.end()
    return picks or tuple((c.name, c.name) for c in supported(table).columns if c.name not in taken)


def distinct(pipeline: Pipeline, names: Sequence[str], path: Path, what: str) -> None:
    """Refuse a name that is there twice.

    Raises:
        ConfigError: so it is.
    """
    for index, name in enumerate(names):
        if name in names[:index]:
            raise error(pipeline, path, f"{what} {name}", "rename one of them")


def letter_twins(names: Iterable[str]) -> list[tuple[str, str]]:
    """Names that are one to Spark, which ignores letter case: (the first of its kind, another one). Pure."""
    seen = dict[str, str]()
    pairs = [(seen.setdefault(name.lower(), name), name) for name in names]
    return [(first, other) for first, other in pairs if first != other]


def near(name: str, names: Iterable[str]) -> str:
    """``did you mean x?`` for the names that look like ``name``; empty if none does."""
    close = difflib.get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"did you mean {' or '.join(close)}?" if close else ""


def error(pipeline: Pipeline, path: Path, what: str, fix: str) -> ConfigError:
    """An error that names the place in the file."""
    return pipeline.error_at(path, what, fix=fix, means="nothing was changed")


def key_of(pipeline: Pipeline, table: Table, chosen: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """A view's key: its root's primary key, in the order that the file says.

    Raises:
        ConfigError: the file names other columns.
    """
    found = Gathering()
    chosen = tuple(present(table, column) for column in chosen)
    for index, column in enumerate(chosen):
        with found.step():
            known(pipeline, table, column, (*path, index))
    found.end()
    if chosen and sorted(chosen) != sorted(table.primary_key):
        # A delete names the primary key and nothing else: a document under another id could never be deleted.
        columns = ", ".join(table.primary_key)
        raise error(pipeline, path, f"the key must be {table.qualified}'s primary key ({columns})", "leave `key` out")
    return chosen or table.primary_key
