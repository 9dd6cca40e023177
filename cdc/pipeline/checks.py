"""What one key can't know: whether the parts of the file fit each other. The catalogue's checks come later."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import parse_qs

from cdc.errors import ConfigError
from cdc.history_names import GAPS, HISTORY, VERSIONS
from cdc.index_names import alias_beside
from cdc.java_kafka import java_client
from cdc.keyspaces import is_reserved, outer_stems
from cdc.masking import mask_text
from cdc.pipeline.checks_fold import check_fold
from cdc.pipeline.checks_joins import check_joins, nothing_picked
from cdc.pipeline.checks_outbox import check_outbox
from cdc.pipeline.checks_push import check_push
from cdc.pipeline.checks_queries import check_queries
from cdc.pipeline.checks_timing import check_timing
from cdc.pipeline.joins import standing
from cdc.pipeline.models import Path, Pipeline
from cdc.pipeline.problems import Wrong, near, shown
from cdc.pipeline.rowstore import RowStore
from cdc.pipeline.search import SearchSink
from cdc.pipeline.sink import SinkPart
from cdc.pipeline.sinks import IcebergSink, RedisSink
from cdc.pipeline.source import Connect, Kafka, Registry, Source
from cdc.pipeline.views import SHARED_FLOW, View

# Iceberg's metadata columns: a column of that name makes MERGE fail in odd ways. The last two are those of format 3,
# to which a table may be raised.
ICEBERG_COLUMNS = frozenset(
    ("_pos", "_file", "_partition", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number")
)
# A search server's metadata fields: a document that has one is rejected.
SEARCH_FIELDS = frozenset(
    ("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_field_names", "_ignored", "_tier", "_nested_path")
)


def check(pipeline: Pipeline) -> Iterator[Wrong]:
    """Everything that does not fit, in no order."""
    yield from _source(pipeline.source)
    yield from _credentials(pipeline.connect, ("connect",))
    yield from _kafka(pipeline.kafka)
    if pipeline.row_store is not None:
        yield from _redis("row_store", pipeline.row_store, ("row_store",))
    for name, view in pipeline.views.items():
        yield from _view(pipeline, name, view)
        yield from check_fold(pipeline, name, view)
        yield from check_timing(pipeline, name, view)
        yield from check_joins(pipeline, name, view, lambda *of: _table(pipeline.source, *of))
    yield from check_outbox(pipeline)
    for name, sink in pipeline.sinks.items():
        yield from _sink(pipeline, name, sink)
    yield from _targets(pipeline)
    yield from _own_indices(pipeline)
    yield from _keys(pipeline)
    yield from check_push(pipeline)
    yield from check_queries(pipeline)
    if {"wal_budget", "replication_slot_max_lag_mb"} <= pipeline.policy.model_fields_set:
        yield Wrong(
            ("policy", "replication_slot_max_lag_mb"),
            "policy.replication_slot_max_lag_mb: the old name of policy.wal_budget, and that is given too",
            "take it out",
        )


def tables_named(source: Source, name: str) -> list[str] | None:
    """The captured tables that a name means; None when a ``schema.*`` leaves that to the catalogue."""
    known = _by_name(tuple(source.tables))
    return None if known is None else known.get(name, [])


@lru_cache(maxsize=4)
def _by_name(tables: tuple[str, ...]) -> dict[str, list[str]] | None:
    """Each name that a table has, with or without its schema: each join of thousands asks for one."""
    if any(table.endswith(".*") for table in tables):
        return None
    found: dict[str, list[str]] = {}
    for table in dict.fromkeys(tables):
        for name in (table, table.partition(".")[2]):
            found.setdefault(name, []).append(table)
    return found


def _source(source: Source) -> Iterator[Wrong]:
    seen: set[str] = set()
    for index, table in enumerate(source.tables):
        if table in seen:
            yield Wrong(("source", "tables", index), f"source.tables: {shown(table)} is here a second time")
        seen.add(table)
        if table.partition(".")[0] == source.schema_:
            yield Wrong(
                ("source", "tables", index),
                f"source.tables: schema '{source.schema_}' is Headwater's own (source.schema)",
            )
    if source.setup_password is not None and source.setup_user is None:
        yield Wrong(("source", "setup_password"), "source.setup_password without source.setup_user")
    if source.registry is not None:
        yield from _credentials(source.registry, ("source", "registry"))
    elif source.format == "avro":
        yield Wrong(("source", "format"), "source.format: avro needs source.registry", "registry: {url: http://…}")


def _kafka(kafka: Kafka) -> Iterator[Wrong]:
    if "bootstrap.servers" in kafka.options:
        yield Wrong(("kafka", "options", "bootstrap.servers"), "kafka.options: brokers go into kafka.bootstrap")
    try:
        java_client(kafka.options_plain(), read=lambda _option, _path: "")  # files are looked at by `check`
    except ConfigError as error:
        yield Wrong(("kafka", "options"), error.what, error.fix)


def _credentials(part: Connect | SearchSink | Registry, path: Path) -> Iterator[Wrong]:
    where = ".".join(map(str, path))
    if part.password is not None and part.user is None:
        yield Wrong((*path, "password"), f"{where}.password without {where}.user")
    if part.user is not None and part.password is None:
        yield Wrong((*path, "user"), f"{where}.user without {where}.password (or its variable is empty)")


def _table(source: Source, name: str, path: Path, where: str) -> Iterator[Wrong]:
    found = tables_named(source, name)
    if found is None or len(found) == 1:
        return
    if found:
        yield Wrong(path, f"{where}: {shown(name)} may be {' or '.join(found)}", "write schema.table")
        return
    known = [*source.tables, *(table.partition(".")[2] for table in source.tables)]
    fix = near(name, known, "add it to source.tables")
    yield Wrong(path, f"{where}: {shown(name)} is not in source.tables", fix)


def _view(pipeline: Pipeline, name: str, view: View) -> Iterator[Wrong]:
    path: Path = ("views", name)
    yield from _table(pipeline.source, view.root, (*path, "root"), f"views.{name}.root")
    yield from nothing_picked(view, path)
    out: set[str] = set()
    for index, (_, column) in enumerate(view.picks):
        if column in out:
            yield Wrong((*path, "columns", index), f"views.{name}.columns: two columns are named {shown(column)}")
        out.add(column)
    for field in view.fields:
        if field in out:
            yield Wrong((*path, "fields", field), f"views.{name}.fields: {shown(field)} is a column of the view too")
        if not field:
            yield Wrong((*path, "fields", field), f"views.{name}.fields: a field without a name")
    if len(set(view.key)) != len(view.key):
        yield Wrong((*path, "key"), f"views.{name}.key: a column is here a second time")


def _sink(pipeline: Pipeline, name: str, sink: SinkPart) -> Iterator[Wrong]:
    path: Path = ("sinks", name)
    given = [key for key in ("view", "views", "tables") if getattr(sink, key)]
    if len(given) != 1:
        said = "none of them is given" if not given else f"{' and '.join(given)} are given"
        yield Wrong((*path, given[-1]) if given else path, f"sinks.{name}: expected one of view, views, tables; {said}")
        return
    for index, view in enumerate(sink.view_names):
        at: Path = (*path, "view") if sink.view else (*path, "views", index)
        if view not in pipeline.views:
            fix = near(view, pipeline.views) or f"views here: {', '.join(pipeline.views) or 'none'}"
            yield Wrong(at, f"sinks.{name}: there is no view {shown(view)}", fix)
        elif view in sink.view_names[:index]:
            yield Wrong(at, f"sinks.{name}.views: {shown(view)} is here a second time")
        else:
            yield from _reserved(pipeline.views[view], view, sink, name)
            yield from _shared(pipeline, view, sink, at)
    if isinstance(sink.tables, tuple):
        for index, table in enumerate(sink.tables):
            yield from _table(pipeline.source, table, (*path, "tables", index), f"sinks.{name}.tables")
            if table in sink.tables[:index]:
                yield Wrong((*path, "tables", index), f"sinks.{name}.tables: {shown(table)} is here a second time")
    if isinstance(sink, SearchSink):
        yield from _search(name, sink, path)
    if isinstance(sink, IcebergSink) and sink.history:
        yield from _history(pipeline, name, sink)
    if isinstance(sink, RedisSink):
        yield from _redis(f"sinks.{name}", sink, path)
        if sink.changes is not None:
            yield from _changes(f"sinks.{name}", sink, path)


def _reserved(view: View, name: str, sink: SinkPart, sink_name: str) -> Iterator[Wrong]:
    taken: frozenset[str] = frozenset()
    if isinstance(sink, IcebergSink | SearchSink):
        taken = ICEBERG_COLUMNS if isinstance(sink, IcebergSink) else SEARCH_FIELDS
    named: dict[str, Path] = {column: ("columns", index) for index, (_, column) in enumerate(view.picks)}
    named |= {field: path for path, field, _ in standing(view)}
    for part in ("aggregates", "fields"):
        named |= {field: (part, field) for field in getattr(view, part)}
    for field in taken & named.keys():
        yield Wrong(
            ("views", name, *named[field]),
            f"views.{name}: the name '{field}' belongs to the target of sinks.{sink_name} itself",
            "choose another name",
        )


def _shared(pipeline: Pipeline, name: str, sink: SinkPart, path: Path) -> Iterator[Wrong]:
    """A view whose flow would have the name, and so the place in the log, of the one that plain views share."""
    if name != SHARED_FLOW or sink.form == "columns" or not pipeline.views[name].alone:
        return
    plain = [view for view in sink.view_names if view in pipeline.views and not pipeline.views[view].alone]
    if plain:
        yield Wrong(
            path,
            f"sinks.{path[1]}: a view with joins, fields or where can't be called '{name}' beside plain views "
            f"({shown(plain[0])}): what these share is called so, and one would skip what the other has read",
            "call the view otherwise, or keep it in a sink of its own",
        )


def _search(name: str, sink: SearchSink, path: Path) -> Iterator[Wrong]:
    yield from _credentials(sink, path)
    if ":" not in sink.url.partition("://")[2].rpartition("@")[2].partition("/")[0].rpartition("]")[2]:
        yield Wrong((*path, "url"), f"sinks.{name}.url: the port is missing", "write http://host:9200")
    logins = [key for key in ("user", "api_key", "signer") if getattr(sink, key, None) is not None]
    if len(logins) > 1:
        what = f"sinks.{name}: {' and '.join(logins)} exclude each other"
        yield Wrong((*path, logins[-1]), what, "keep one of them")
    if sink.index and (sink.tables is not None or len(sink.views) > 1):
        yield Wrong(
            (*path, "index"),
            f"sinks.{name}.index names one index, but the sink may keep several views or tables",
            "leave index out: each index is named as its view; or give this sink one view",
        )
    if sink.index and sink.index_prefix:
        what = f"sinks.{name}: index and index_prefix exclude each other: index is the whole name"
        yield Wrong((*path, "index_prefix"), what, "keep one of them")


def _redis(where: str, part: RedisSink | RowStore, path: Path) -> Iterator[Wrong]:
    if part.user is not None and part.password is None:
        # The client would silently log in as nobody.
        yield Wrong((*path, "user"), f"{where}.user without {where}.password (or its variable is empty)")
    if part.password is not None and "@" in part.url:
        # The client would silently take the one in the address.
        yield Wrong((*path, "password"), f"{where}: a login in url and one beside it", "keep one of them")
    if part.cluster and _server(part.url).partition("://")[2].partition("/")[2] != "0":
        yield Wrong((*path, "url"), f"{where}: a Redis Cluster has only the database 0", "end url in /0")


def _changes(where: str, sink: RedisSink, path: Path) -> Iterator[Wrong]:
    at: Path = (*path, "changes")
    if sink.cluster:
        what = "in a cluster no script can change a document and tell of it in one step, so a crash could part the two"
        yield Wrong(at, f"{where}.changes: {what}", "keep these views in a second redis sink, on one server")
    if sink.ttl_seconds is not None:
        what = "a value that ends after ttl_seconds tells nobody, so subscribers would keep it for ever"
        yield Wrong(at, f"{where}.changes: {what}", "keep these views in a second redis sink, without a ttl")


def _targets(pipeline: Pipeline) -> Iterator[Wrong]:
    """Two sinks on one target would overwrite each other's documents and delete what the other one keeps."""
    owners: dict[tuple[str, ...], str] = {}
    for name, sink in pipeline.sinks.items():
        for target in dict.fromkeys(_targets_of(pipeline, sink)):
            owner = owners.setdefault(target, name)
            if owner != name:
                yield Wrong(
                    ("sinks", name, _first_given(sink, "index", "index_prefix")),
                    f"sinks.{name} writes to the same target as sinks.{owner}: {target[0]} '{target[-1]}'",
                    _apart(sink),
                )
                break


def _first_given(sink: SinkPart, *keys: str) -> str:
    """The first of these keys that a sink's part of the file has; its type if it has none."""
    return next((key for key in keys if getattr(sink, key, None)), "type")


def _own_indices(pipeline: Pipeline) -> Iterator[Wrong]:
    """An alias that is called as an index that another alias' generations have, or are to have one day."""
    known: dict[tuple[str, str], str] = {}
    for name, sink in pipeline.sinks.items():
        if isinstance(sink, SearchSink):
            known |= {(_server(sink.url), sink.index_of(view)): name for view in _names_of(pipeline, sink)}
    for (server, alias), name in known.items():
        beside, queries = alias_beside(alias) or ("", False)
        owner = known.get((server, beside))
        if queries and not pipeline.queries:
            continue  # nobody stores queries: a view may be called so
        if owner is not None:
            yield Wrong(
                ("sinks", name, _first_given(pipeline.sinks[name], "index", "index_prefix", "view", "views")),
                f"sinks.{name}: Headwater itself makes an index of the name '{alias}' for '{beside}' of sinks.{owner}",
                "choose another name",
            )


def _keys(pipeline: Pipeline) -> Iterator[Wrong]:
    """Keys of a Redis that two sinks would both take for theirs, though none of their views is named as the other's."""
    known: dict[tuple[str, str], str] = {}
    places: dict[str, Path] = {}
    for name, sink in pipeline.sinks.items():
        if isinstance(sink, RedisSink):
            known |= {(_database(sink.url), stem): name for stem in _stems(pipeline, sink)}
            places[name] = ("sinks", name, "key_prefix" if sink.key_prefix else "type")
    for (server, stem), name in known.items():
        at = places[name]
        if is_reserved(stem):
            yield Wrong(at, f"sinks.{name}: the keys {stem}:… are Headwater's own", "give it another key_prefix")
        outer = next((outer for outer in outer_stems(stem) if (server, outer) in known), None)
        if outer is not None:
            owner = known[server, outer]
            yield Wrong(
                at,
                f"sinks.{name} writes among the keys of sinks.{owner}: {stem}:… is part of {outer}:…, whose ids may be "
                "anything",
                "give one of them another key_prefix",
            )


def _stems(pipeline: Pipeline, sink: RedisSink) -> list[str]:
    return [f"{sink.key_prefix}{name}" for name in _names_of(pipeline, sink)]


def _database(url: str) -> str:
    """A Redis server and the database on it, which an option of the address overrides."""
    server, option = _server(url), parse_qs(url.partition("?")[2]).get("db")
    if not server.startswith("unix:"):
        server, _, database = server.rpartition("/")
        option = option or [database]
    chosen = option[-1] if option else "0"
    return f"{server}/{int(chosen) if chosen.isdigit() else chosen}"


def _apart(sink: SinkPart) -> str:
    if isinstance(sink, SearchSink):
        return "give one of them another index or index_prefix"
    return (
        "give one of them another key_prefix" if isinstance(sink, RedisSink) else "give one of them another namespace"
    )


def _targets_of(pipeline: Pipeline, sink: SinkPart) -> Iterator[tuple[str, ...]]:
    for name in _names_of(pipeline, sink):
        if isinstance(sink, SearchSink):
            yield "index", _server(sink.url), sink.index_of(name)
        elif isinstance(sink, RedisSink):
            yield "keys", _database(sink.url), f"{sink.key_prefix}{name}:"
        elif isinstance(sink, IcebergSink):
            yield "table", _server(sink.catalog_uri), f"{sink.namespace}.{name}"
    if isinstance(sink, IcebergSink) and sink.history:
        for name in _history_names(pipeline, sink):
            yield "table", _server(sink.catalog_uri), f"{sink.namespace}.{name}"


def _history(pipeline: Pipeline, name: str, sink: IcebergSink) -> Iterator[Wrong]:
    """A view must not stand where a table's history is to be."""
    for taken in sorted({*_names_of(pipeline, sink)} & {*_history_names(pipeline, sink)}):
        what = f"sinks.{name}.history: {shown(taken)} is a view of this sink, and the name of a table's history"
        yield Wrong(("sinks", name, "history"), what, "rename the view, or give history a sink of its own")


def _history_names(pipeline: Pipeline, sink: IcebergSink) -> list[str]:
    """Names of what history makes, as far as the file alone tells them."""
    views = [pipeline.views[view] for view in sink.view_names if view in pipeline.views]
    roots = [view.root.rpartition(".")[2] for view in views] or _names_of(pipeline, sink)
    return [GAPS, *(root + end for root in dict.fromkeys(roots) for end in (HISTORY, VERSIONS))]


def _names_of(pipeline: Pipeline, sink: SinkPart) -> tuple[str, ...]:
    """Names of what a sink keeps, as far as the file alone tells them."""
    tables = pipeline.source.tables if sink.tables == "all" else sink.tables or ()
    return sink.view_names or tuple(table.rpartition(".")[2] for table in tables if not table.endswith("*"))


# What an address means that leaves it out.
_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}


def _server(url: str) -> str:
    """An address without what does not tell servers apart: login, options, letter case, default port and database, and
    which of this machine's own names it is."""
    scheme, separator, rest = mask_text(url).partition("://")
    if not separator:
        return url
    host, _, path = rest.rpartition("@")[2].partition("?")[0].partition("/")
    host, scheme = host.lower(), scheme.lower()
    if scheme in _PORTS and ":" not in host.rpartition("]")[2]:
        host = f"{host}:{_PORTS[scheme]}"
    name, _, number = host.rpartition(":")
    if name in ("127.0.0.1", "[::1]"):
        host = f"localhost:{number}"
    path = path.rstrip("/") or ("0" if scheme in ("redis", "rediss") else "")
    return f"{scheme}://{host}/{path}"
