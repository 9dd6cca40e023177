"""What `init` proposes for databases that nobody here has made: odd names, hundreds of tables."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from cdc.catalogue import Catalogue, Table
from cdc.errors import ConfigError, PipelineFileError, SourceError, SourceRefused
from cdc.pipeline import IcebergSink, Pipeline, RedisSink, SearchSink
from cdc.pipeline.document import SyntaxProblem, parse
from cdc.pipeline.loading import loads
from cdc.resolve.views import resolve_views
from connectors.preflight.tables import name_findings
from connectors.survey import Survey, _named_well
from connectors.tables.foreign_keys import ForeignKey
from operations.propose import names, proposal
from operations.propose.budget import within
from operations.propose.proposal import draft
from operations.propose.views import propose_views
from operations.propose.writing import SETUP_PASSWORD, SOURCE_PASSWORD, Draft, written
from sinks.configure import check_mapping
from tests.support.proposed_tables import KEYS, NOBODY_KNOWS, SHOP, joins, looked, points, survey, table, tables, views

ODD: tuple[str, ...] = ("_id", "_source", "_index", "on", "null", "true", "a.b", "a b", "ümlaut", "ORDER", "x" * 63)
ODD += ("a", "id", "~", "<<", "${x}")
# Names that a table may have, and still be captured.
TABLES = ("_id", "_source", "_index", "on", "null", "true", "ORDER", "x" * 63, "a-b", "1", "refs")


def checked(made: Draft) -> Pipeline:
    """The pipeline of a proposal, which passes what `check` finds out without servers."""
    pipeline = loads(written(made), "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"})
    catalogue = Catalogue(dict(made.survey.tables))
    for name, sink in pipeline.sinks.items():
        found = resolve_views(pipeline, catalogue, name)
        if isinstance(sink, SearchSink):
            check_mapping(name, sink, found)
    return pipeline


def drafted(found: Mapping[str, Table], keys: Sequence[ForeignKey], sinks: Sequence[str] = ("elasticsearch",)) -> Draft:
    return draft(looked(tables=found, foreign_keys=tuple(keys)), name="x", sinks=sinks)


def refused(made: Draft) -> list[str]:
    return [one.name for one in made.left_out if one.name.startswith("view ")]


# -- odd names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("sink", ["elasticsearch", "redis", "iceberg"])
def test_any_name_of_a_column_makes_a_file_that_passes(odd: str, sink: str) -> None:
    """As a key, as a foreign key, as the only other column, and in the table that points."""
    found = tables(
        table("people", odd, "label", "colour"),
        table("things", "key_", odd, "more"),
        table("pairs", odd, "other", key=2),
        table("parts", "number", odd, "rank", key=2),
    )
    keys = [
        points("pairs", "other", "things", "key_"),
        ForeignKey("public.pairs", "public.people", (odd,), (odd,)),
        ForeignKey("public.things", "public.people", (odd,), (odd,)),
        ForeignKey("public.parts", "public.people", (odd,), (odd,)),
    ]
    made = drafted(found, keys, [sink])
    checked(made)
    assert not refused(made)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_proposed_for_any_schema_passes(seed: int) -> None:
    """Tables, columns and foreign keys drawn from odd names; a failure is made again by its seed."""
    dice = random.Random(seed)
    found: dict[str, Table] = {}
    for name in dice.sample(TABLES, dice.randint(2, 7)):
        columns = dice.sample([*ODD, "password", "created_at"], dice.randint(1, 8))
        kinds = {"password": "text", "created_at": "timestamptz"}
        made = table(name, *columns, key=1, kinds=kinds, schema=dice.choice(["public", "public", "other"]))
        wide = len(columns) > 2 and dice.random() < 0.4
        made = replace(made, primary_key=tuple(columns[:2])) if wide else made
        found[made.qualified] = made
    keys = []
    for _ in range(dice.randint(0, 12)):
        one, other = dice.choice(list(found.values())), dice.choice(list(found.values()))
        if len(one.columns) >= len(other.primary_key):
            columns = dice.sample([column.name for column in one.columns], len(other.primary_key))
            keys.append(ForeignKey(one.qualified, other.qualified, tuple(columns), other.primary_key))
    sinks = dice.sample(["elasticsearch", "opensearch", "redis", "iceberg"], dice.randint(1, 3))
    try:
        result = drafted(found, keys, sinks)
    except ConfigError as error:  # each table has a secret, say
        assert "no table can be shown in" in error.what
        return
    checked(result)
    assert not refused(result)


def test_a_table_whose_name_has_a_point_is_not_captured_at_all() -> None:
    """So nothing above has to write it."""
    for name in ("public.a.b", "public.a b", "public.ümlaut"):
        assert list(name_findings(name, {}, [name]))


def test_of_tables_whose_topics_kafka_calls_one_the_first_is_captured() -> None:
    names = ["app.eu_orders", "app_eu.orders", "app.other"]
    plain, [left] = _named_well(names, names)
    assert (plain, left.name) == (["app.eu_orders", "app.other"], "app_eu.orders")
    assert left.why == "its topic and that of app.eu_orders would be one to Kafka"


def test_a_key_called_id_as_in_mongodb_is_shown_as_id() -> None:
    found = tables(table("people", "_id", "name", "age"), table("pets", "_id", "owner_id", "race"))
    made = drafted(found, [points("pets", "owner_id", "people", "_id")])
    pipeline = checked(made)
    assert pipeline.views["person"].picks == (("_id", "id"), ("name", "name"), ("age", "age"))
    assert pipeline.views["pet"].refs["owner"].picks[0] == ("_id", "id")
    taken = drafted(tables(table("people", "_id", "id", "name")), [])
    assert checked(taken).views["person"].picks[0] == ("_id", "id_2")
    # A cache has no names of its own.
    assert checked(drafted(found, [], ["redis"])).views["person"].picks == ()


def test_a_foreign_key_called_as_a_search_server_s_field_makes_a_join_of_another_name() -> None:
    found = tables(table("people", "id", "name", "age"), table("events", "id", "_source_id", "kind"))
    made = drafted(found, [points("events", "_source_id", "people", "id")])
    assert list(checked(made).views["event"].refs) == ["_source_person"]


def test_no_two_columns_are_an_object_and_a_value_of_one_name() -> None:
    made = drafted(tables(table("things", "id", "a", "a.b", "c.d")), [])
    assert checked(made).views["thing"].picks == (("id", "id"), ("a", "a"), ("a.b", "a_b"), ("c.d", "c.d"))


def test_a_view_that_no_index_could_have_is_left_out_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.propose.hidden._called_otherwise", lambda every: {})
    found = tables(table("people", "_primary_term", "name", "age"), table("pets", "id", "name", "race"))
    made = drafted(found, [])
    assert list(views(made.proposal)) == ["pet"] and refused(made) == ["view person"]
    assert any("server's own" in one.why for one in made.left_out)


def test_a_view_that_the_file_could_not_have_is_left_out_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file is refused as a whole for it; the command failed, and named a file that nobody has."""
    monkeypatch.setattr("operations.propose.hidden.RESERVED", frozenset())
    found = tables(
        table("people", "id", "name", "age"), table("pets", "id", "race", "age"), table("e", "id", "_id_id", "kind")
    )
    made = drafted(found, [points("e", "_id_id", "people", "id")])
    assert list(views(made.proposal)) == ["person", "pet"] and refused(made) == ["view e"]
    assert all("the proposed file" not in one.why for one in made.left_out)


# -- many tables -------------------------------------------------------------------------------------------------------


def odoo(count: int, width: int) -> tuple[dict[str, Table], list[ForeignKey]]:
    """Tables that all name who made a row and who changed it, and users with a password."""
    more = [f"a_longer_name_of_a_column_{n}" for n in range(width)]
    users = table("res_users", "id", "login", "password", *more, kinds={"password": "text"})
    of = [table(f"module_table_{n}", "id", "create_uid", "write_uid", "parent_id", *more) for n in range(count)]
    keys = []
    for n in range(count):
        name = f"module_table_{n}"
        keys += [points(name, column, "res_users", "id") for column in ("create_uid", "write_uid")]
        keys.append(points(name, "parent_id", f"module_table_{(n * 7 + 1) % count}", "id"))
    return tables(users, *of), keys


def test_a_database_of_hundreds_of_tables_makes_a_file_with_all_their_joins() -> None:
    found, keys = odoo(300, 60)
    made = drafted(found, keys)
    text = written(made)
    assert text.count("&res_users_columns") == 1 and text.count("*res_users_columns") == 600
    pipeline = checked(made)
    assert len(pipeline.views) == 301 and not any("values" in one.why for one in made.left_out)
    shown = pipeline.views["module_table_299"].refs["write_uid_res_user"].picks
    assert ("login", "login") in shown and "password" not in dict(shown)


def test_who_deletes_the_view_with_the_named_list_is_told_where_it_goes() -> None:
    found, keys = odoo(3, 60)
    text = written(drafted(found, keys))
    assert "moves that list to the next `*name`" in " ".join(text.replace("#", " ").split())
    gone = re.sub(r"&res_users_columns \[.*?\]", "[id]", text, flags=re.DOTALL)
    with pytest.raises(PipelineFileError) as raised:
        loads(gone, "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"})
    said = str(raised.value)
    assert "`&res_users_columns` was with a list that is gone" in said
    assert "write the list here, with `&res_users_columns` before it; a text that begins with * wants quotes" in said


@pytest.mark.parametrize("password", ["hunter2", "Tr0ub4dor&3", "a!b", "x" * 200 + "_columns"])
def test_a_password_that_is_taken_for_an_alias_is_not_shown(password: str) -> None:
    with pytest.raises(SyntaxProblem) as raised:
        parse(f"source:\n  password: *{password}\n")
    assert password not in str(raised.value.problem) and "wants quotes" in raised.value.problem.fix


def test_a_list_of_columns_that_comes_once_or_is_short_has_no_name() -> None:
    wide = table("people", "id", "a", "b", "c", "d", "password", kinds={"password": "text"})
    text = written(drafted(SHOP | tables(wide), KEYS))
    assert "&" not in text and "columns: [id, a, b, c, d]" in text
    assert text.count("columns: [id, name, manager_id]") > 1


def test_a_thousand_tables_are_proposed_in_seconds() -> None:
    """For each join all tables were looked at: it was cubic."""
    found, keys = odoo(1_000, 10)
    started = time.process_time()
    proposed = propose_views(found, keys, NOBODY_KNOWS, joins=True)
    assert time.process_time() - started < 10
    assert len(proposed.views) == 1_001


def test_joins_that_a_file_has_no_room_for_are_left_out_and_no_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found, keys = odoo(40, 60)
    monkeypatch.setattr("operations.propose.views.within", lambda views, n: within(views, n, (900, 20_000)))
    proposed = propose_views(found, keys, NOBODY_KNOWS, joins=True)
    assert len(proposed.views) == 41 and max(len(view.joins) for view in proposed.views) == 1
    why = {one.name: one.why for one in proposed.left_out if "values" in one.why}
    assert "more than 900 values" in next(iter(why.values()))
    assert any(name.endswith(" of public.module_table_39") for name in why)


def test_parts_whose_lists_a_file_has_no_room_for_have_views_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.propose.views.within", lambda views, n: within(views, n, (0, 0)))
    proposed = propose_views(SHOP, KEYS, NOBODY_KNOWS, joins=True)
    assert {view.table.qualified for view in proposed.views} == set(SHOP)
    assert not any(view.joins for view in proposed.views)
    assert all(view.kind == "plain" for view in proposed.views)


def test_more_tables_than_any_file_takes_are_told_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.pipeline.document.MAX_NODES", 30)
    with pytest.raises(ConfigError, match="for 6 tables would not load: more than 30 values") as raised:
        drafted(SHOP, KEYS)
    assert "the proposed file" not in str(raised.value) and "--tables" in raised.value.fix


# -- foreign keys ------------------------------------------------------------------------------------------------------


def test_a_foreign_key_over_periods_makes_no_join() -> None:
    keys = [replace(KEYS[1], period=True)]
    found = propose_views(SHOP, keys, NOBODY_KNOWS, joins=True)
    assert [one.why for one in found.left_out] == ["it is over periods: its rows cover, they are not equal"]


def test_a_foreign_key_to_another_unique_key_is_a_join_too() -> None:
    books = replace(table("books", "id", "isbn", "shelf"), unique_keys=(("isbn",),))
    loans = table("loans", "id", "book", "shelf")
    keys = [points("loans", "book", "books", "isbn"), points("loans", "shelf", "books", "shelf")]
    found = propose_views(tables(books, loans), keys, NOBODY_KNOWS, joins=True)
    assert [one.why for one in found.left_out] == [
        "joins go along primary keys and other unique ones, and (shelf) is none of public.books"
    ]
    assert "'isbn': 'book'" in str(found.views)


def test_a_third_foreign_key_of_a_table_between_two_is_a_list_of_its_own() -> None:
    found = tables(
        table("users", "id", "name", "age"),
        table("groups", "id", "title", "colour"),
        table("members", "user_id", "group_id", "invited_by", key=2),
    )
    keys = [
        points("members", "user_id", "users", "id"),
        points("members", "group_id", "groups", "id"),
        points("members", "invited_by", "users", "id"),
    ]
    made = drafted(found, keys)
    user = {join.name: join for join in views(made.proposal)["user"].joins}
    assert user["groups"].refs and user["groups"].on == {"id": "user_id"}
    invited = user["members_by_invited_by"]
    assert (invited.on, invited.refs, invited.columns) == ({"id": "invited_by"}, (), ())
    assert list(joins(views(made.proposal)["group"])) == ["users"]
    checked(made)


def test_our_own_schema_is_left_out_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def surveyed(*given: Any) -> Survey:
        asked.append(given[1:])
        return survey(user="own", owner="own")

    connection = MagicMock(pgconn=SimpleNamespace(used_password=True))
    monkeypatch.setattr(proposal, "connect", lambda source: connection)
    monkeypatch.setattr(proposal, "survey", surveyed)
    monkeypatch.setattr(proposal, "read_acting", lambda connection, found: frozenset())
    source = looked().source.model_copy(update={"schema_": "ours"})
    for patterns in (["a"], ()):
        proposal.look(source, patterns)
    assert asked == [(["a"], "ours"), ((), "ours")]


@pytest.mark.parametrize("kind", [SourceError, SourceRefused])
def test_a_server_that_refuses_the_login_is_not_to_be_started(
    monkeypatch: pytest.MonkeyPatch, kind: type[SourceError]
) -> None:
    monkeypatch.setattr(proposal, "connect", MagicMock(side_effect=kind("Datenbank »shop« existiert nicht")))
    with pytest.raises(kind) as refused:
        proposal.look(looked().source, [])
    assert refused.value.fix == "correct user, password and database of the address"


def test_a_name_is_free_among_many_without_looking_at_each() -> None:
    taken = names.Taken(["A", "b"])
    assert (taken.take("a", "c"), taken.take("C"), taken.take("x")) == ("c", "C_2", "x")


def test_each_sink_of_a_file_keeps_its_documents_under_the_pipelines_name() -> None:
    """Two databases have a table of one name, and their pipelines share the servers."""
    kinds = ("elasticsearch", "opensearch", "redis", "iceberg")
    sinks = []
    for name in ("blog", "shop"):
        made = draft(looked(tables=SHOP, foreign_keys=()), name=name, sinks=kinds)
        sinks.append(checked(made).sinks)
        assert f"an index for each view, {name}-<view>" in written(made)
    search, server, cache, warehouse = sinks[1].values()
    assert isinstance(search, SearchSink) and isinstance(server, SearchSink)
    assert (search.index_of("order"), server.index_of("order")) == ("shop-order", "shop-order")
    assert isinstance(cache, RedisSink) and cache.key_prefix == "shop:"
    assert isinstance(warehouse, IcebergSink) and warehouse.namespace == "shop"
    assert [one["search"].index_of("order") for one in sinks] == ["blog-order", "shop-order"]  # type: ignore[union-attr]
