"""What a statement is, before it is run: one that reads, and which tables it names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from typing import TYPE_CHECKING, Any

from cdc.errors import QueryRefused

if TYPE_CHECKING:
    import duckdb

# (schema, table) as a statement names them; the schema is empty where it names none.
Named = tuple[str, str]
ONLY = "a query is one statement that reads: SELECT, WITH, FROM, DESCRIBE, SUMMARIZE or SHOW"
# DuckDB makes a SELECT of a PRAGMA, so what was written counts as well.
_READS = frozenset(("(", "SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "DESCRIBE", "DESC", "SUMMARIZE", "SHOW"))
# What DuckDB makes of SHOW TABLES and SHOW ALL TABLES.
_LISTS = ('"tables"', "__show_tables_expanded")
# In the place of SHOW TABLES, which leaves out what must be asked for under its sink's name, because two sinks have it.
_SHOW_TABLES = """SELECT if("schema" = 'main', "name", "schema" || '.' || "name") AS "name"
FROM (SHOW ALL TABLES) WHERE "database" <> 'temp' ORDER BY ALL"""
# Of the functions that stand for a table those that only read. Others act: logging and profiling write files, over
# others if they are told so, and some run SQL that is given as text.
_FUNCTIONS = re.compile(
    r"(read|parquet|duckdb|pragma|test)_\w+|iceberg_(scan|snapshots|metadata|\w+_(stats|properties))|json_(each|tree)"
    r"|unnest|range|generate_series|repeat(_row)?|glob|sniff_csv|histogram(_values)?|summary|icu_calendar_names"
    r"|pg_timezone_names"
)
_ABSENT = re.compile(r"Table with name (?P<name>\S+) does not exist!\n(?P<hint>Did you mean [^\n]*\n)?")
# A call of which an argument is a text, before the list of what else it may be.
_OF_TEXT = re.compile(r"(?P<what>.*? argument types '(?P<call>[^\s(]+)\([^)]*\bVARCHAR\b[^']*'\.).*", re.DOTALL)
# Words of a statement that may be columns: each more doubles how often it is parsed.
MOST_WORDS = 8


@dataclass(frozen=True)
class Statement:
    """One that may be run.

    Attributes:
        text: it.
        named: the tables that it names; names of its own (WITH) are among these.
        lists: it asks which tables there are.
    """

    text: str
    named: frozenset[Named]
    lists: bool


def checked(
    connection: duckdb.DuckDBPyConnection, text: str, columns: Callable[[], Collection[str]] = tuple
) -> Statement:
    """A statement that may be run.

    Args:
        connection: to parse it with; nothing is run.
        text: as it was given.
        columns: gives the tables' columns; asked if it can't be parsed.

    Raises:
        QueryRefused: it is none, or it does something else than to read (terminal).
    """
    import duckdb

    try:
        found = connection.extract_statements(text)
        if len(found) != 1:
            what = f"there are {len(found)} statements" if found else "there is no statement"
            raise QueryRefused(f"{what} to run", means="nothing was run", fix=f"{ONLY}; a PIVOT needs its IN (...)")
        # Only what reads can be made a tree of.
        row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [found[0].query]).fetchone()
    except duckdb.ParserException as error:
        raise refused(error, words=_reserved(connection, text, columns())) from error
    except duckdb.Error as error:
        raise refused(error) from error
    tree = json.loads(row[0]) if row else {"error": True}
    kind = _first_word(text)
    if kind not in _READS or found[0].type != duckdb.StatementType.SELECT or tree["error"]:
        raise QueryRefused(f"{kind} is not run here", means="nothing was run, and nothing was changed", fix=ONLY)
    nodes = list(_nodes(tree))
    for name in (node["function"]["function_name"] for node in nodes if node.get("type") == "TABLE_FUNCTION"):
        if not _FUNCTIONS.fullmatch(name.lower()):
            raise QueryRefused(f"the function {name} is not run here", means="nothing was run", fix=ONLY)
    shown = [node["table_name"] for node in nodes if node.get("type") == "SHOW_REF"]
    named = {(node["schema_name"], node["table_name"]) for node in nodes if node.get("type") == "BASE_TABLE"}
    plain = re.fullmatch(r"SHOW\s+TABLES\s*;?\s*", found[0].query.strip(), re.IGNORECASE)
    query = _SHOW_TABLES if plain else found[0].query
    return Statement(query, frozenset(named), any(name in _LISTS for name in shown))


def _reserved(connection: duckdb.DuckDBPyConnection, text: str, columns: Collection[str]) -> list[str]:
    """Columns that a statement names without quotes, and that are words of DuckDB's own there: with quotes around them
    it can be read. None where that does not mend it."""
    import duckdb

    known, whole = {name.casefold(): name for name in columns}, text.encode()
    starts = [at for at, kind in duckdb.tokenize(text) if kind == duckdb.token_type.keyword]
    words = ((at, re.match(r"\w+", _from(text, at))) for at in starts)
    places = [(at, word[0]) for at, word in words if word and word[0].casefold() in known][:MOST_WORDS]
    # The fewest that do: of a column `from` not each FROM.
    for tried in (one for size in range(1, len(places) + 1) for one in combinations(places, size)):
        quoted = whole
        for at, word in reversed(tried):
            quoted = quoted[:at] + f'"{known[word.casefold()]}"'.encode() + quoted[at + len(word.encode()) :]
        with suppress(duckdb.Error):
            connection.extract_statements(quoted.decode())
            return list(dict.fromkeys(known[word.casefold()] for _, word in tried))
    return []


def _first_word(text: str) -> str:
    import duckdb

    starts = [at for at, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    found = re.match(r"\w+|.", _from(text, starts[0]).lstrip()) if starts else None
    return found[0].upper() if found else ""


def _from(text: str, at: int) -> str:
    """DuckDB counts bytes."""
    return text.encode()[at:].decode(errors="ignore")


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(inner)


def refused(error: Exception, tables: str = "", words: Collection[str] = ()) -> QueryRefused:
    """What DuckDB says of a statement, in a block of ours.

    Args:
        error: DuckDB's.
        tables: those that there are, for a name that is not there.
        words: columns that the statement names without quotes, and that need them.
    """
    import duckdb

    said = str(error).strip()
    if isinstance(error, duckdb.PermissionException):
        first = said.splitlines()[0].removeprefix("Permission Error: ")
        return QueryRefused(
            f"the query reaches beyond the warehouse: {first}",
            means="a query reads the warehouse's tables: no other file, no network, no setting",
            fix="ask for the tables by their names: " + (tables or "`SHOW TABLES` lists them"),
        )
    if tables and isinstance(error, duckdb.CatalogException):
        if absent := _ABSENT.search(said):  # DuckDB looks among its own tables, too
            said = said.replace(absent["hint"] or "", "")
            near = get_close_matches(absent["name"].lower(), tables.lower().split(", "), n=1)
            tables = f"{tables} (did you mean {near[0]}?)" if near else tables
        return QueryRefused(said, means="nothing was changed", fix=f"the tables are {tables}")
    if call := _OF_TEXT.fullmatch(said):
        return QueryRefused(
            call["what"],
            means="a numeric without a precision is text in a warehouse, with Postgres's own digits (docs/types.md)",
            fix="say which number it is: CAST(… AS DECIMAL(38, 10)), or AS DOUBLE; or correct the SQL",
        )
    quote = ", ".join(f'"{word}"' for word in words)
    fix = f"quote the column: {quote} (DuckDB has a word of its own of that name); or correct the SQL"
    return QueryRefused(said, means="nothing was changed", fix=fix if words else "correct the SQL")
