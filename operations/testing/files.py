"""From test files to cases: every name and value is held against the tables, and all that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc import types
from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, HeadwaterError, PipelineFileError
from cdc.keys import document_id
from cdc.pipeline import Pipeline
from cdc.pipeline.document import FileNode, SyntaxProblem, decode, parse
from cdc.pipeline.problems import Problem, near, report
from cdc.types.raw import raw_value
from operations.testing.cases import Case, Change, Expected, Row
from operations.testing.shapes import column_of, read_saved

_TOP = ("version", "catalogue", "tables", "defaults", "tests")
_CASE = ("name", "given", "then", "expect")
_STEPS = ("insert", "update", "delete")
_EXPECT = ("key", "document", "absent", "dead_letter")


def read_file(path: Path, pipeline: Pipeline) -> tuple[Catalogue, list[Case]]:
    """The tables and the tests of one file.

    Args:
        path: a YAML file as docs/testing.md describes it.
        pipeline: the loaded pipeline file: whose views are expected.

    Raises:
        PipelineFileError: the file can't be read or is wrong; all that is, each with ``file:line:column`` (terminal).
    """
    try:
        root, problems = parse(decode(path.read_bytes()))
    except SyntaxProblem as error:
        raise report(str(path), [error.problem]) from None
    except OSError as error:
        raise PipelineFileError(f"{path}:1:1: the test file can't be read: {error.strerror}") from None
    reader = _Reader(path, pipeline, problems)
    reader.tables(root)
    cases = reader.cases(root)
    if reader.problems:
        raise report(str(path), reader.problems)
    return Catalogue(reader.known), cases


class _Problem(Exception):
    """Something is wrong here; the rest of the file is read all the same."""


class _Reader:
    def __init__(self, path: Path, pipeline: Pipeline, problems: list[Problem]) -> None:
        self.path, self.pipeline, self.problems = path, pipeline, problems
        self.known: dict[str, Table] = {}
        self.defaults: dict[str, dict[str, FileNode]] = {}

    # -- telling ------------------------------------------------------------------------------------------------------

    def wrong(self, node: FileNode, what: str, fix: str = "") -> None:
        self.problems.append(Problem(node.line, node.column, what, fix))

    @contextmanager
    def step(self, node: FileNode) -> Iterator[None]:
        """What is refused inside is told with the node's place."""
        try:
            yield
        except _Problem:
            pass
        except (ValueError, HeadwaterError) as error:
            self.wrong(node, error.what if isinstance(error, HeadwaterError) else str(error))

    def mapping(self, node: FileNode | None, what: str, known: Sequence[str] = ()) -> dict[str, FileNode]:
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.wrong(node, f"{what}: expected a mapping, got {node.kind()}")
            raise _Problem
        for key in node.value if known else ():
            if key not in known:
                line, column = node.keys.get(key, (node.line, node.column))
                self.problems.append(Problem(line, column, f"{what}: there is no key {key}", near(key, known)))
        return dict(node.value)

    def items(self, node: FileNode | None, what: str) -> list[FileNode]:
        if node is None or node.value is None:
            return []
        if not isinstance(node.value, list):
            self.wrong(node, f"{what}: expected a list, got {node.kind()}")
            raise _Problem
        return list(node.value)

    # -- tables -------------------------------------------------------------------------------------------------------

    def tables(self, root: FileNode) -> None:
        with self.step(root):
            top = self.mapping(root, "a test file", _TOP)
            if top.get("version", root).plain() != 1:
                self.wrong(top.get("version", root), "expected `version: 1`")
            if "catalogue" in top:
                self._saved(top["catalogue"])
            for name, node in self.mapping(top.get("tables"), "tables").items():
                with self.step(node):
                    self._shape(name, node)
            for name, node in self.mapping(top.get("defaults"), "defaults").items():
                with self.step(node):
                    self.defaults[self.table(name, node).qualified] = self.mapping(node, "defaults of a table")

    def _saved(self, node: FileNode) -> None:
        try:
            self.known = read_saved(self.path.parent / str(node.value))
        except OSError as error:
            fix = f"`headwater test FILE --save-catalogue {self.path.parent / str(node.value)}` writes it"
            self.wrong(node, f"the catalogue can't be read: {error.strerror}", fix)

    def _shape(self, name: str, node: FileNode) -> None:
        parts = self.mapping(node, "a table", ("columns", "key", "unique"))
        key = parts.get("key", node).plain() if "key" in parts else None
        named = [key] if isinstance(key, str) else key
        if not isinstance(named, list) or not named:
            raise ValueError(f"table {name} needs its primary key, like `key: [id]`")
        columns = []
        for column, kind in self.mapping(parts.get("columns"), "columns").items():
            with self.step(kind):
                columns.append(column_of(column, str(kind.value), key=column in named))
        if missing := [one for one in named if one not in [column.name for column in columns]]:
            raise ValueError(f"table {name} has no column {missing[0]}, which its key names")
        unique = self._unique(name, parts.get("unique"), [column.name for column in columns])
        schema, _, bare = name.rpartition(".")
        table = Table(schema or "public", bare, tuple(columns), tuple(named), unique_keys=unique)
        self.known[table.qualified] = table

    def _unique(self, name: str, node: FileNode | None, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """A table's other unique keys."""
        found = []
        for one in self.items(node, f"`unique` of {name}"):
            with self.step(one):
                key = one.plain()
                if not isinstance(key, list) or not key:
                    raise ValueError(f"`unique` of {name} is a list of keys, each a list of columns, like [[mrn]]")
                if missing := [str(column) for column in key if column not in columns]:
                    raise ValueError(f"table {name} has no column {missing[0]}, which `unique` names")
                found.append(tuple(key))
        return tuple(found)

    def table(self, name: str, node: FileNode) -> Table:
        found = [table for table in self.known.values() if name in (table.name, table.qualified)]
        if len(found) != 1:
            hint = near(name, [table.name for table in self.known.values()])
            what = f"there are several tables {name}: name its schema" if found else f"there is no table {name}"
            self.wrong(node, f"{what} among `tables` and in `catalogue`", hint)
            raise _Problem
        return found[0]

    # -- tests --------------------------------------------------------------------------------------------------------

    def cases(self, root: FileNode) -> list[Case]:
        found: list[Case] = []
        with self.step(root):
            for node in self.items(self.mapping(root, "a test file").get("tests"), "tests"):
                with self.step(node):
                    found.append(self._case(node))
            if not found and not self.problems:
                self.wrong(root, "there is no test in it", "see `headwater test --help`")
        for number, case in enumerate(found):
            if case.name in [other.name for other in found[:number]]:
                self.problems.append(Problem(case.line, 1, f"a second test is called {case.name!r}"))
        return found

    def _case(self, node: FileNode) -> Case:
        parts = self.mapping(node, "a test", _CASE)
        name = parts["name"].plain() if "name" in parts else None
        if not isinstance(name, str) or not name:
            raise ValueError("a test needs a `name`")
        changes: list[Change] = []
        for table, rows in self.mapping(parts.get("given"), "given").items():
            with self.step(rows):
                of = self.table(table, rows)
                for row in self.items(rows, f"rows of {table}"):
                    with self.step(row):
                        changes.append(self._added("given", of, row))
        for step in self.items(parts.get("then"), "then"):
            with self.step(step):
                changes += self._step(step)
        expected: list[Expected] = []
        for view, items in self.mapping(parts.get("expect"), "expect").items():
            with self.step(items):
                root = self._root(view, items)
                for item in self.items(items, f"documents of {view}"):
                    with self.step(item):
                        expected.append(self._expected(view, root, item))
        if not parts.get("expect"):
            raise ValueError(f"test {name!r} expects nothing")
        return Case(self.path, node.line, name, changes, expected)

    def _step(self, node: FileNode) -> list[Change]:
        parts = self.mapping(node, "a step", (*_STEPS, "row", "key", "set"))
        kinds = [kind for kind in _STEPS if kind in parts]
        if len(kinds) != 1:
            raise ValueError("a step is one of `insert: TABLE`, `update: TABLE` and `delete: TABLE`")
        (kind,) = kinds
        table = self.table(str(parts[kind].value), parts[kind])
        wanted = {"insert": {"row"}, "update": {"key", "set"}, "delete": {"key"}}[kind]
        if parts.keys() - {kind} != wanted:
            raise ValueError(f"`{kind}` takes {' and '.join(f'`{one}`' for one in sorted(wanted))}")
        if kind == "insert":
            return [self._added("insert", table, parts["row"])]
        key = self._key(table, parts["key"])
        row = self._values(table, self.mapping(parts["set"], "set")) if kind == "update" else {}
        return [Change("update" if kind == "update" else "delete", table, key, row, node.line)]

    def _added(self, kind: Any, table: Table, node: FileNode) -> Change:
        given = self.mapping(node, f"a row of {table.name}")
        nodes = {**self.defaults.get(table.qualified, {}), **given}
        row = {column.name: None for column in types.supported(table).columns} | self._values(table, nodes)
        for column in table.columns:
            if column.name not in nodes and not column.nullable and not types.unsupported(column):
                where = f"{table.name}.{column.name}"
                self.wrong(node, f"{where} is NOT NULL and not given", "give it, or name it in `defaults` of the table")
        return Change(kind, table, {name: row[name] for name in table.primary_key}, row, node.line)

    def _values(self, table: Table, nodes: Mapping[str, FileNode]) -> dict[str, Any]:
        row = {}
        for name, node in nodes.items():
            column = table.by_name.get(name)
            if column is None:
                self.wrong(node, f"table {table.name} has no column {name}", near(name, table.by_name))
                continue
            try:
                row[name] = raw_value(column, node.plain())
            except ValueError as error:
                self.wrong(node, f"{table.name}.{name} ({column.type_name}): {error}")
        return row

    def _key(self, table: Table, node: FileNode) -> Row:
        nodes = self._key_nodes(table.primary_key, node)
        return self._values(table, nodes)

    def _key_nodes(self, names: Sequence[str], node: FileNode) -> dict[str, FileNode]:
        """A key's values by column: a single one bare, several as a list or a mapping."""
        if isinstance(node.value, dict):
            nodes = dict(node.value)
        else:
            parts = node.value if isinstance(node.value, list) else [node]
            nodes = dict(zip(names, parts, strict=False)) if len(parts) == len(names) else {}
        if set(nodes) != set(names):
            self.wrong(node, f"the key is {', '.join(names)}: write `[{', '.join(names)}]` with values")
            raise _Problem
        return nodes

    # -- documents ----------------------------------------------------------------------------------------------------

    def _root(self, view: str, node: FileNode) -> tuple[Table, tuple[str, ...]]:
        if view not in self.pipeline.views:
            self.wrong(node, f"the pipeline file has no view {view}", near(view, self.pipeline.views))
            raise _Problem
        model = self.pipeline.views[view]
        table = self.table(model.root, node)
        return table, tuple(model.key or table.primary_key)

    def _expected(self, view: str, root: tuple[Table, tuple[str, ...]], node: FileNode) -> Expected:
        parts = self.mapping(node, "an expected document", _EXPECT)
        if "key" not in parts:
            raise ValueError("an expected document needs its `key`")
        said = [name for name in ("document", "absent", "dead_letter") if name in parts]
        if len(said) != 1 or (said == ["absent"] and parts["absent"].value is not True):
            raise ValueError("of a document is said one of `document: …`, `absent: true` and `dead_letter: TEXT`")
        document = parts["document"].plain() if said == ["document"] else None
        if said == ["document"] and not isinstance(document, dict):
            raise ValueError("a document is a mapping; for one that must not be there say `absent: true`")
        letter = str(parts["dead_letter"].plain()) if said == ["dead_letter"] else None
        return Expected(view, self._identity(*root, parts["key"]), document, letter, node.line)

    def _identity(self, table: Table, names: Sequence[str], node: FileNode) -> str:
        raw = self._values(table, self._key_nodes(names, node))
        return document_id([_canonical(table.by_name[name], raw[name]) for name in names if name in raw])


def _canonical(column: Column, raw: Any) -> Any:
    convert: Callable[[Any], Any] | None = types.json_converter(column)
    return raw if convert is None else convert(raw)


def files_of(file: Path, named: Sequence[Path]) -> list[Path]:
    """The files to read: those that were named, else ``tests/*.yaml`` beside the pipeline file.

    Raises:
        ConfigError: there is none (terminal).
    """
    if named:
        return list(named)
    folder = file.parent / "tests"
    found = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not found:
        raise ConfigError(f"there is no test file in {folder}", fix="see `headwater test --help` for how one looks")
    return found
