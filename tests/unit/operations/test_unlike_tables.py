"""Tables as which a sink can call nothing: refused before anything is made, and in nobody's way where all else runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError, SinkRefused
from cdc.gather import parts_of
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.fields import TABLE
from cdc.resolve.views import resolve_views
from operations import gate
from operations.check import sinks as checks
from operations.generations import targets
from operations.generations.targets import drop_generation, drop_sink_state
from operations.propose.proposal import warehouse_tables
from operations.schema.joining import lacking, take_up
from operations.state.folder import register_of
from sinks.configure import plain_config
from sinks.elasticsearch import generations
from sinks.elasticsearch.index import Indices
from sinks.elasticsearch.settings import read_settings
from sinks.factory import open_target
from sinks.iceberg import catalogue as iceberg
from spark.disk.made_of import define

FILE = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [SOURCE]}
kafka: {bootstrap: "localhost:1"}
connect: {url: "http://127.0.0.1:1"}
sinks:
  SINK
engine: {state_dir: STATE}
"""
SINKS = {
    "search": 'search: {type: elasticsearch, url: "http://127.0.0.1:1", tables: TABLES}',
    "lake": "lake: {type: iceberg, tables: TABLES, catalog_uri: STATE/c.db, warehouse: STATE/w, namespace: n}",
}
ODD = {"search": "_prisma_migrations", "lake": "order-items"}


def table(name: str, schema: str = "public") -> Table:
    return Table(schema, name, (Column("id", "integer", "int4", nullable=False),), ("id",))


def told(*tables: Table) -> Catalogue:
    return Catalogue({one.qualified: one for one in tables})


def loaded(folder: Path, sink: str, tables: str = "all", source: str = '"public.*"', more: str = "") -> Pipeline:
    text = FILE.replace("SINK", SINKS[sink].replace("TABLES", tables + more)).replace("SOURCE", source)
    return loads(text.replace("STATE", str(folder)), "shop.yaml", {})


def started(pipeline: Pipeline, *tables: str) -> None:
    """A living generation that has written, of these tables."""
    for sink in pipeline.sinks:
        generation = register_of(pipeline, sink).generation(1)
        define(generation, pipeline, tables)
        (generation.flow_folder("main") / "checkpoint").mkdir(parents=True)
        generation.note_views([name.rpartition(".")[2] for name in tables])


def quiet(line: str) -> None:
    raise AssertionError(line)


def refused(pipeline: Pipeline, catalogue: Catalogue, *, kept_too: bool = True) -> list[ConfigError]:
    return gate.wrong_in_file(pipeline, catalogue, quiet, kept_too=kept_too)


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "name"), [("search", "_prisma_migrations"), ("search", "-x"), ("lake", "order-items"), ("lake", "2024_x")]
)
@pytest.mark.parametrize("named", [False, True])
def test_a_table_that_a_sink_can_not_name_is_refused_with_the_way_out(
    tmp_path: Path, sink: str, name: str, named: bool
) -> None:
    """`check` found nothing, and `run` failed."""
    pipeline = loaded(tmp_path, sink, f"[public.a, public.{name}]" if named else "all")
    [error] = refused(pipeline, told(table("a"), table(name)))
    assert name in error.what and error.what.startswith("shop.yaml:7:") and "write a view for it" in error.fix
    assert not refused(loaded(tmp_path, sink), told(table("a"), table("_a" if sink == "lake" else "2024-a")))


def test_a_prefix_makes_a_name_of_it(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, "search", more=", index_prefix: shop-")
    assert not refused(pipeline, told(table("_prisma_migrations")))
    [error] = refused(loaded(tmp_path, "search"), told(table("_prisma_migrations")))
    assert "`index_prefix`" in error.fix


def test_two_tables_that_would_be_one_index_are_refused(tmp_path: Path) -> None:
    """The second one's setup refused the whole sink, with an advice that could not help."""
    orders = table("Orders"), table("orders", "legacy")
    pipeline = loaded(tmp_path, "search", "[public.Orders, legacy.orders]", '"public.*", "legacy.*"')
    [error] = refused(pipeline, told(*orders))
    assert "public.Orders and legacy.orders would be one index, 'orders'" in error.what
    assert "write a view" in error.fix
    assert not refused(loaded(tmp_path, "lake", source='"public.*", "legacy.*"'), told(*orders))


@given(st.from_regex(TABLE, fullmatch=True).filter(lambda name: not name.endswith("*")))
def test_what_is_refused_is_what_the_servers_part_refuses(qualified: str) -> None:
    """So no sink of documents that runs is refused: with such a table it was never opened."""
    name = qualified.partition(".")[2]
    for sink in SINKS:
        part = loaded(Path("/nowhere"), sink).sinks[sink]
        config = plain_config(loaded(Path("/nowhere"), sink), sink, 1, [name])
        try:
            open_target(config).close() if sink == "search" else iceberg.table_name(part, name)
            assert part.can_name(name)
        except ConfigError:
            assert not part.can_name(name)


class Server:
    """The indices that were made, as what they are."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.indices = self

    def exists(self, index: str) -> bool:
        return index in self.made

    def create(self, index: str, mappings: Any, **_: Any) -> None:
        self.made[index] = mappings

    def get_mapping(self, index: str) -> Any:
        return SimpleNamespace(body={index: {"mappings": self.made[index]}})

    def put_mapping(self, index: str, source: Any) -> None: ...


def test_a_sink_with_two_tables_of_one_index_was_never_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first has made is another view's to the second: setup refuses, before anything is written."""
    config = plain_config(loaded(tmp_path, "search"), "search", 1, ["Orders", "orders", "lines"])
    settings, server = read_settings(config), Server()
    lease: Any = SimpleNamespace(check=lambda _: None, claim=lambda _: None)
    monkeypatch.setattr(generations, "seen", lambda *_: {})
    indices = Indices(server, settings, lease)  # type: ignore[arg-type]
    for view in ("Orders", "lines"):
        indices._setup_target(settings.targets[view])
    with pytest.raises(SinkRefused, match="was made by sink search for view Orders, not for view 'orders'"):
        indices._setup_target(settings.targets["orders"])
    assert {made["_meta"]["headwater"]["view"] for made in server.made.values()} == {"Orders", "lines"}


# -- what runs ---------------------------------------------------------------------------------------------------------


def test_a_warehouse_that_was_begun_with_one_goes_on_with_the_others(tmp_path: Path) -> None:
    """Each table has a flow of its own, and that one's has always failed: `check` says so, `apply` and `run` go on."""
    pipeline, tables = loaded(tmp_path, "lake"), told(table("a"), table("order-items"), table("2024_x"))
    assert len(refused(pipeline, tables, kept_too=False)) == 2
    started(pipeline, "public.a", "public.order-items")
    assert len(refused(pipeline, tables)) == 2
    assert not refused(pipeline, tables, kept_too=False), "2024_x has come later, and was not taken up"
    named = loaded(tmp_path, "lake", "[public.a, public.order-items, public.2024_x]")
    assert [error.what for error in refused(named, tables, kept_too=False)] == [
        error.what for error in refused(named, tables) if "2024_x" in error.what
    ]
    assert {view.name for view in resolve_views(pipeline, tables, "lake")} == {"a", "order-items", "2024_x"}


@pytest.mark.parametrize("sink", SINKS)
def test_nobodys_apply_waits_for_who_made_a_table_that_was_not_taken_up(tmp_path: Path, sink: str) -> None:
    pipeline, tables = loaded(tmp_path, sink), told(table("a"), table(ODD[sink]))
    assert refused(pipeline, tables, kept_too=False), "nothing has begun"
    started(pipeline, "public.a")
    assert not refused(pipeline, tables, kept_too=False)
    assert len(refused(pipeline, tables)) == 1, "check tells of it"


@pytest.mark.parametrize("names", [("orders", "Orders"), ("Orders", "orders")])
def test_nor_for_one_that_would_be_the_index_of_another(tmp_path: Path, names: tuple[str, str]) -> None:
    pipeline, tables = loaded(tmp_path, "search"), told(*map(table, names))
    assert refused(pipeline, tables, kept_too=False)
    started(pipeline, "public.orders")
    assert not refused(pipeline, tables, kept_too=False)
    assert len(refused(pipeline, tables)) == 1


@pytest.mark.parametrize("sink", SINKS)
def test_one_that_comes_to_a_sink_of_all_tables_is_not_taken_up(tmp_path: Path, sink: str) -> None:
    """It ended a whole search sink, which had run until then."""
    pipeline, odd, said = loaded(tmp_path, sink), table(ODD[sink]), list[str]()
    started(pipeline, "public.a")
    now = told(table("a"), table("b"), odd)
    assert lacking(pipeline, sink, now) == {"public.b"}
    assert not take_up(pipeline, sink, now, odd.qualified, said) and ODD[sink] in said[0]
    assert take_up(pipeline, sink, now, "public.b", said) and len(said) == 1


# -- drop --------------------------------------------------------------------------------------------------------------


class Opened:
    def __init__(self) -> None:
        self.dropped: list[str] = []

    def drop(self, view: str) -> None:
        self.dropped.append(view)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_with_one_is_dropped(tmp_path: Path, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be, and connector and slot, which come after it, stayed: the log grew."""
    pipeline = loaded(tmp_path, sink, source=f"public.a, public.{ODD[sink]}")
    started(pipeline, "public.a", f"public.{ODD[sink]}")
    opened, queries = Opened(), list[str]()

    def open_it(config: Any) -> Opened:
        open_target(config).close()
        return opened

    monkeypatch.setattr(targets, "open_target", open_it)
    monkeypatch.setattr(targets, "drop_queries", lambda config: queries.extend(config["targets"]))
    drop_generation(pipeline, sink, register_of(pipeline, sink).generation(1))
    assert opened.dropped == ["a"]
    drop_sink_state(pipeline)
    assert opened.dropped == ["a", "a"] and queries == (["a"] if sink == "search" else [])
    assert not (tmp_path / "shop" / sink).exists()


# -- check and init ----------------------------------------------------------------------------------------------------


def test_what_a_search_sink_refuses_of_its_settings_is_an_error_of_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a check that was skipped, which nobody takes for an error."""

    def refusals(config: Any) -> Any:
        raise ConfigError("sink 'search': it can't be so", fix="correct it")

    monkeypatch.setattr(checks, "tables_of", lambda *_, **__: told(table("a")))
    monkeypatch.setattr(checks, "refusals", refusals)
    pipeline = loaded(tmp_path, "search")
    answer = checks._indices(pipeline, {"search": pipeline.sinks["search"]})  # type: ignore[dict-item]
    assert [(one.about, one.message) for one in answer.findings] == [("sink search", "sink 'search': it can't be so")]


def test_init_leaves_them_out_of_a_warehouse_and_says_so() -> None:
    kept, left = warehouse_tables(told(table("a"), table("order-items"), table("2024_x")).tables)
    assert kept == ["public.a"] and [one.name for one in left] == ["public.order-items", "public.2024_x"]
    assert all("letters, digits and '_'" in one.why and one.fix == "write a view for it" for one in left)


def test_all_of_them_are_told_in_one_error(tmp_path: Path) -> None:
    tables = told(table("_a"), table("_b"))
    with pytest.raises(ConfigError) as caught:
        resolve_views(loaded(tmp_path, "search"), tables, "search")
    assert len(parts_of(caught.value)) == 2
