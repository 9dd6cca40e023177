"""A proposed pipeline as the text of a file: commented, and without any password. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc.pipeline import Source
from cdc.pipeline.template import yaml_value
from connectors.survey import LeftOut, Survey
from operations.propose import names
from operations.propose.budget import SHARED
from operations.propose.hidden import Pick
from operations.propose.proposed import Join, Proposal, Proposed
from operations.propose.roles import Roles
from operations.propose.telling import told

WIDTH = 110
# Where the ports of the local servers begin, unless something else is said.
PORT_BASE = 15_000
# The variables of `headwater ps --env`, and how far behind that the port is.
SEARCH = {"elasticsearch": ("HEADWATER_ELASTICSEARCH", 200), "opensearch": ("HEADWATER_OPENSEARCH", 203)}
HOME = "${HEADWATER_HOME:-.headwater}"
SOURCE_PASSWORD, SETUP_PASSWORD = "HEADWATER_SOURCE_PASSWORD", "HEADWATER_SETUP_PASSWORD"
# Lines that say what is left out; of a database that is nothing but that, a file would be nothing else.
MAX_LEFT_OUT = 60


@dataclass(frozen=True)
class Draft:
    """All that a file is written from.

    Attributes:
        name: the pipeline's.
        source: where the database is.
        survey: what is in it.
        roles: who reads and who sets up.
        trusted: roles that the server lets in without a password.
        proposal: the views.
        sinks: kinds of sinks.
        warehouse: tables of an Iceberg sink; None for all.
        left_out: of tables, columns and joins, with the reasons.
        notes: good to know of what is in the file.
        port_base: where the ports of the local servers begin.
    """

    name: str
    source: Source
    survey: Survey
    roles: Roles
    trusted: frozenset[str]
    proposal: Proposal
    sinks: Sequence[str]
    warehouse: Sequence[str] | None
    left_out: Sequence[LeftOut]
    notes: Sequence[LeftOut]
    port_base: int = PORT_BASE

    def local(self, variable: str, distance: int, scheme: str = "", path: str = "") -> str:
        """A variable with a local server's address where it is not set.

        Args:
            variable: its name.
            distance: of the port from ``port_base``.
            scheme: before the address.
            path: behind it.
        """
        return f"${{{variable}:-{scheme}127.0.0.1:{self.port_base + distance}{path}}}"

    @property
    def joined(self) -> bool:
        """Whether rows have to be kept for views."""
        return any(view.joins for view in self.proposal.views)


def variables(draft: Draft) -> list[str]:
    """The environment variables that must be set before the file can be used."""
    wanted = {SOURCE_PASSWORD: draft.roles.user, SETUP_PASSWORD: draft.roles.setup_user}
    return [name for name, role in wanted.items() if role is not None and role not in draft.trusted]


def written(draft: Draft) -> str:
    """The file's text."""
    parts = [_head(draft), _source(draft), _servers(draft), _views(draft), _sinks(draft)]
    parts += [_told("Left out", draft.left_out, draft), _told("Good to know", draft.notes, draft)]
    return "\n".join("\n".join(lines) + "\n" for lines in map(list, parts) if lines)


def value(plain: object, *, inside: bool = False) -> str:
    """A value that stands in the file for itself: what looks like a variable in it is none."""
    return yaml_value(_literal(plain), inside=inside)


def _literal(plain: object) -> object:
    """A value in which nothing is taken for a variable; keys of a mapping have none."""
    if isinstance(plain, Mapping):
        return {key: _literal(item) for key, item in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_literal(item) for item in plain]
    return plain.replace("${", "$${") if isinstance(plain, str) else plain


def _head(draft: Draft) -> Iterator[str]:
    needed = variables(draft)
    yield from comment(
        f"Proposed by `headwater init` for the database {draft.source.database}: change what you like. `headwater "
        "template` has every key, `headwater preview FILE VIEW` shows the documents that a view makes."
        + (f" Set {' and '.join(needed)} first: passwords stay out of this file." if needed else "")
    )
    yield "version: 1"
    yield f"name: {draft.name}"


def _source(draft: Draft) -> Iterator[str]:
    source, roles = draft.source, draft.roles
    if roles.first:
        yield from comment("Before the first `headwater check`, somebody who may has to say:")
        yield from (f"#   {line}" for line in roles.first)
    if draft.survey.wal_level != "logical":
        yield "#   ALTER SYSTEM SET wal_level = logical;    (and restart the server)"
    yield "source:"
    yield f"  host: {value(source.host)}"
    yield f"  port: {source.port}"
    yield f"  database: {value(source.database)}"
    yield _remarked(f"  user: {value(roles.user)}", roles.why or "replicates and reads; needs to own nothing")
    yield f"  password: {_password(SOURCE_PASSWORD, roles.user, draft.trusted)}"
    if roles.setup_user is not None:
        use = f"{roles.acts}: apply and drop use it, and run where a table is altered"
        yield _remarked(f"  setup_user: {value(roles.setup_user)}", use)
        yield f"  setup_password: {_password(SETUP_PASSWORD, roles.setup_user, draft.trusted)}"
    if source.sslmode != "prefer":
        yield f"  sslmode: {source.sslmode}"
    if source.sslrootcert is not None:
        yield f"  sslrootcert: {value(source.sslrootcert)}"
    yield "  tables:"
    for schema in draft.survey.whole:
        members = [name for name in draft.survey.tables if name.startswith(f"{schema}.")]
        yield _remarked(f"    - {value(f'{schema}.*')}", f"{len(members):,} tables now, and those that come")
    for name in draft.survey.tables:
        if name.partition(".")[0] not in draft.survey.whole:
            yield _remarked(f"    - {value(name)}", _size(draft.survey.sizes.rows.get(name, 0)))


def _password(variable: str, role: str, trusted: frozenset[str]) -> str:
    return f"${{{variable}:-}}" if role in trusted else f"${{{variable}}}"


def _servers(draft: Draft) -> Iterator[str]:
    yield from comment('The variables are those of `eval "$(headwater ps --env)"`; the defaults are the local servers.')
    yield "kafka:"
    yield f"  bootstrap: {draft.local('HEADWATER_KAFKA', 92)}"
    yield ""
    yield "connect:"
    yield f"  url: {draft.local('HEADWATER_CONNECT', 83, 'http://')}"
    if draft.joined:
        yield ""
        yield _remarked("row_store:", "where joined views keep the rows of their tables; it must never evict")
        yield f"  url: {draft.local('HEADWATER_REDIS_STORE', 380, 'redis://', '/0')}"


# -- views ------------------------------------------------------------------------------------------------------------


class _Lists:
    """Lists of columns as the file writes them: a long one that comes again is written once, and has a name then.

    A table that all others name, and that has a column to hide, would be written out in each of them.
    """

    def __init__(self, views: Iterable[Proposed]) -> None:
        self.taken: list[str] = []
        self.again: dict[str, str] = {}
        owners: dict[str, str] = {}
        counted: Counter[str] = Counter()
        for view in views:
            every = [join for one in view.joins for join in (one, *one.refs)]
            for table, columns in [(view.root, view.columns), *((join.table, join.columns) for join in every)]:
                if len(columns) >= SHARED:
                    text = _plain(columns)
                    owners.setdefault(text, table)
                    counted[text] += 1
        self.owners = {text: table for text, table in owners.items() if counted[text] > 1}

    def text(self, columns: Sequence[Pick]) -> str:
        """A list at its next place."""
        text = _plain(columns)
        if text in self.again or text not in self.owners:
            return self.again.get(text, text)
        name = names.free(f"{names.snake(self.owners[text])}_columns", self.taken)
        self.taken.append(name)
        self.again[text] = f"*{name}"
        return f"&{name} {text}"


def _plain(columns: Sequence[Pick]) -> str:
    return value(list(columns))


def _views(draft: Draft) -> Iterator[str]:
    if not draft.proposal.views:
        return
    lists = _Lists(draft.proposal.views)
    if lists.owners:
        yield from comment(
            "`&name` names a list of columns, and `*name` is that list again: who deletes the view with `&name` moves "
            "that list to the next `*name`."
        )
    yield "views:"
    for view in draft.proposal.views:
        yield from _view(view, lists)
    found = draft.proposal
    if found.between:
        yield from comment(f"Without a view of their own, because others show them: {', '.join(found.between)}", "  ")
    for name, owner in found.details.items():
        yield from comment(f"Parts of {owner}'s documents, without a view of their own: {name}", "  ")


def _view(view: Proposed, lists: _Lists) -> Iterator[str]:
    yield f"  {view.name}:"
    yield f"    root: {value(view.root)}"
    if view.hidden:
        yield from comment(f"left out, by their names: {', '.join(view.hidden)}", "    ")
    if view.columns:
        yield f"    columns: {lists.text(view.columns)}"
    for kind in ("refs", "children", "aggregates"):
        mine = [join for join in view.joins if join.kind == kind]
        if mine:
            yield _remarked(f"    {kind}:", _KINDS[kind])
            for join in mine:
                yield from _join(join, lists)


_KINDS = {
    "refs": "rows that this row points at: an object each, or null",
    "children": "rows that point at this row: an array each, an object where there can be but one",
    "aggregates": "rows that point at this row, counted",
}


def _join(join: Join, lists: _Lists) -> Iterator[str]:
    keys = _flat(join)
    if join.one or join.hide:
        keys["one" if join.one else "hide"] = "true"
    if join.order_by:
        keys["order_by"] = _inside(join.order_by)
    if join.limit is not None:
        keys["limit"] = str(join.limit)
    if join.kind == "aggregates":
        keys["value"] = _inside("count(*)")
    if join.columns:
        keys["columns"] = lists.text(join.columns)
    if join.refs:
        below = {
            ref.name: _flat(ref) | ({"columns": lists.text(ref.columns)} if ref.columns else {}) for ref in join.refs
        }
        keys["refs"] = _braces({name: _braces(ref) for name, ref in below.items()})
    line = f"      {join.name}: {_braces(keys)}"
    if len(line) <= WIDTH + 8:
        yield line
        return
    yield f"      {join.name}:"
    for key, item in keys.items():
        yield f"        {key}: {item}"


def _flat(join: Join) -> dict[str, str]:
    return {"table": _inside(join.table), "on": value(dict(join.on))}


def _inside(plain: object) -> str:
    """A value that may stand inside of braces."""
    return value(plain, inside=True)


def _braces(keys: Mapping[str, str]) -> str:
    """Keys, which need no quotes, and values as the file writes them."""
    return "{" + ", ".join(f"{key}: {item}" for key, item in keys.items()) + "}"


# -- sinks -------------------------------------------------------------------------------------------------------------


def _sinks(draft: Draft) -> Iterator[str]:
    views = value([view.name for view in draft.proposal.views])
    yield "sinks:"
    for kind in draft.sinks:
        if kind in SEARCH:
            # Who wants both has both under names of their own.
            name = "search" if kind == next(one for one in draft.sinks if one in SEARCH) else kind
            yield _remarked(f"  {name}:", f"an index for each view, {draft.name}-<view>")
            yield f"    type: {kind}"
            yield f"    url: {draft.local(*SEARCH[kind], 'http://')}"
            yield f"    views: {views}"
            yield f'    index_prefix: "{draft.name}-"'
        elif kind == "redis":
            yield _remarked("  cache:", f"a JSON text for each document, under {draft.name}:<view>:<key>")
            yield "    type: redis"
            yield f"    url: {draft.local('HEADWATER_REDIS_CACHE', 379, 'redis://', '/0')}"
            yield f"    views: {views}"
            yield f'    key_prefix: "{draft.name}:"'
        else:
            yield _remarked("  warehouse:", "a table for each table; joins are made there")
            yield "    type: iceberg"
            yield f"    tables:{' all' if draft.warehouse is None else ''}"
            yield from (f"      - {value(name)}" for name in draft.warehouse or ())
            yield f"    catalog_uri: {HOME}/warehouse/catalog.db"
            yield f"    warehouse: {HOME}/warehouse"
            yield f"    namespace: {draft.name}"
            yield from comment(
                "`history: true` here keeps every change too, each table's in <table>_history: for reports as things "
                "were (`headwater as-of`). It begins when it is set.",
                "    ",
            )
            yield "    # history: true"
    yield ""
    yield "engine:"
    yield f"  state_dir: {HOME}/state"


def _told(head: str, found: Sequence[LeftOut], draft: Draft) -> Iterator[str]:
    if not found:
        return
    yield f"# {head}:"
    lines = told(found, draft.survey.tables)
    for one in lines[:MAX_LEFT_OUT]:
        yield from comment(f"- {one.name}: {one.why}" + (f" ({one.fix})" if one.fix else ""))
    if len(lines) > MAX_LEFT_OUT:
        yield f"# and {len(lines) - MAX_LEFT_OUT:,} more: `headwater init --out - --json` has all"


# -- comments ----------------------------------------------------------------------------------------------------------


def comment(text: str, indent: str = "") -> list[str]:
    """A text as lines of comment; what is in it can't end the comment."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ", break_on_hyphens=False
    )


def _remarked(line: str, remark: str) -> str:
    return f"{line:<32} # {' '.join(remark.split())}" if remark else line


def _size(rows: int) -> str:
    return f"about {rows:,} rows" if rows else ""


def unique(found: Iterable[LeftOut]) -> list[LeftOut]:
    """Each once, in order."""
    return list(dict.fromkeys(found))
