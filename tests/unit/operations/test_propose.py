"""What `init` proposes, from tables and foreign keys alone: names, shapes, roles, and the text of the file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError
from cdc.pipeline import Source
from cdc.pipeline.loading import loads
from cdc.resolve.views import resolve_view
from connectors.survey import LeftOut, _schemas
from connectors.tables.foreign_keys import Sizes
from operations.propose import names
from operations.propose.address import read_address
from operations.propose.proposal import draft, warehouse_tables
from operations.propose.views import newest_first, propose_views
from operations.propose.writing import SETUP_PASSWORD, SOURCE_PASSWORD, written
from tests.support.proposed_tables import (
    HEADWATER,
    KEYS,
    NOBODY_KNOWS,
    OWNER,
    ROOT,
    SHOP,
    joins,
    looked,
    points,
    roles,
    survey,
    table,
    tables,
    views,
)


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("orders", "order"),
        ("order_items", "order_item"),
        ("categories", "category"),
        ("addresses", "address"),
        ("statuses", "status"),
        ("people", "person"),
        ("OrderItems", "OrderItem"),
        ("movies", "movie"),
        ("boxes", "box"),
        ("houses", "house"),
        ("news", "news"),
        ("data", "data"),
        ("USERS", "USER"),
    ],
)
def test_one_of_many(many: str, one: str) -> None:
    assert names.singular(many) == one
    assert names.plural(one) == many
    assert names.singular(one) == one


def test_a_row_is_named_after_the_column_that_points_at_it() -> None:
    assert names.pointed_at(["author_id"], "users", ["id"]) == "author"
    assert names.pointed_at(["authorId"], "Users", ["id"]) == "author"
    assert names.pointed_at(["carrier"], "airlines", ["carrier"]) == "airline"
    assert names.pointed_at(["reply_to"], "tweets", ["id"]) == "reply_to_tweet"
    assert names.pointed_at(["house", "shelf"], "shelves", ["house", "number"]) == "shelf"
    assert names.pointed_at(["id"], "users", ["id"]) == "user"


def test_names_fit_where_they_stand() -> None:
    assert names.snake("OrderItem") == "order_item"
    assert names.snake("2nd thing!") == "t_2nd_thing"
    assert names.snake("x" * 80) == "x" * 63
    assert names.field("Big-Table 1") == "big_Table_1"
    assert names.free("a", ["A", "a_2"]) == "a_3"
    assert names.free("a", ["a"], "b") == "b"


def test_a_table_gets_what_it_points_at_and_what_points_at_it() -> None:
    found = views(propose_views(SHOP, KEYS, NOBODY_KNOWS, joins=True))
    assert joins(found["order"]) == {"user": "refs", "status": "refs", "order_items": "children"}
    items = found["order"].joins[2]
    assert (items.on, items.limit, items.order_by) == ({"id": "order_id"}, 100, "")
    assert joins(found["user"]) == {
        "manager": "refs",
        "orders": "children",
        "user_groups": "children",
        "users_by_manager_total": "aggregates",
    }
    orders = next(join for join in found["user"].joins if join.name == "orders")
    assert orders.order_by == "created_at desc"


def test_a_table_between_two_and_parts_of_others_have_no_view() -> None:
    proposal = propose_views(SHOP, KEYS, NOBODY_KNOWS, joins=True)
    assert proposal.between == ["public.user_groups"]
    assert proposal.details == {"public.order_items": "public.orders"}
    found = views(proposal)
    assert set(found) == {"user", "order", "status", "group"}
    # It has no columns of its own: the groups themselves stand in the user's document.
    [step] = [join for join in found["user"].joins if join.hide]
    assert (step.table, step.on, step.columns, step.shown) == ("user_groups", {"id": "user_id"}, (), ("groups",))
    [groups] = step.refs
    assert (groups.name, groups.table, groups.on) == ("groups", "groups", {"group_id": "id"})
    more = SHOP | tables(table("user_groups", "user_id", "group_id", "rank", key=2))
    [step] = [join for join in views(propose_views(more, KEYS, NOBODY_KNOWS, joins=True))["user"].joins if join.refs]
    assert (step.name, step.hide, step.columns, step.shown) == ("groups", False, ("rank",), ("groups",))
    assert [ref.name for ref in step.refs] == ["group"]


def test_a_table_between_two_may_have_a_key_of_its_own() -> None:
    """So Django makes the tables of its many-to-many fields: an id, and the two foreign keys unique together."""
    pair = (("user_id", "group_id"),)
    django = SHOP | tables(replace(table("user_groups", "id", "user_id", "group_id"), unique_keys=pair))
    proposal = propose_views(django, KEYS, NOBODY_KNOWS, joins=True)
    assert proposal.between == ["public.user_groups"]
    [step] = [join for join in views(proposal)["user"].joins if join.hide]
    assert (step.table, step.on, step.shown) == ("user_groups", {"id": "user_id"}, ("groups",))
    # Not unique together, or with something to say: rows of their own.
    for other in (
        table("user_groups", "id", "user_id", "group_id"),
        replace(table("user_groups", "id", "user_id", "group_id", "rank"), unique_keys=pair),
    ):
        assert propose_views(SHOP | tables(other), KEYS, NOBODY_KNOWS, joins=True).between == []


def test_a_row_that_there_can_be_but_one_of_is_no_list() -> None:
    profiles = table("profiles", "user_id", "motto", "created_at", kinds={"created_at": "timestamptz"})
    badges = replace(table("badges", "id", "holder_id"), unique_keys=(("holder_id",),))
    keys = [points("profiles", "user_id", "users", "id"), points("badges", "holder_id", "users", "id")]
    many = Sizes({"public.users": 1, "public.profiles": 5_000}, {})
    proposal = propose_views(SHOP | tables(profiles, badges), [*KEYS, *keys], many, joins=True)
    found = {join.name: join for join in views(proposal)["user"].joins}
    for name in ("profile", "badge"):
        assert (found[name].kind, found[name].one, found[name].limit, found[name].order_by) == (
            "children",
            True,
            None,
            "",
        )
    assert not found["orders"].one and "profiles_total" not in found
    made = draft(looked(tables=SHOP | tables(profiles), foreign_keys=(*KEYS, keys[0])), name="x", sinks=("redis",))
    assert "profile" in joins(views(made.proposal)["user"]), "what is written must be taken"
    assert "profile: {table: profiles, on: {id: user_id}, one: true}" in written(made)


def test_a_column_that_is_filled_at_the_insert_says_when_a_row_came_to_be() -> None:
    kinds = {"taken_at": "timestamptz", "updated_at": "timestamptz", "due": "date"}
    made = table("photos", "id", "due", "updated_at", "taken_at", kinds=kinds)
    assert newest_first(made) == ""
    assert newest_first(made, ("updated_at", "taken_at")) == "taken_at desc"
    assert newest_first(made, ("updated_at",)) == ""
    made = table("photos", "id", "user_id", "due", "updated_at", "taken_at", kinds=kinds)
    key = points("photos", "user_id", "users", "id")
    two = SHOP | tables(made)
    proposal = propose_views(two, [key], NOBODY_KNOWS, joins=True, written={"public.photos": ("taken_at",)})
    assert [join.order_by for join in views(proposal)["user"].joins if join.name == "photos"] == ["taken_at desc"]


def test_a_table_of_codes_is_shown_plain() -> None:
    found = views(propose_views(SHOP, KEYS, NOBODY_KNOWS, joins=True))
    assert found["status"].kind == "plain" and not found["status"].joins


def test_what_looks_like_a_secret_is_in_no_document() -> None:
    found = views(propose_views(SHOP, KEYS, NOBODY_KNOWS, joins=True))
    assert found["user"].hidden == ("password_hash",)
    shown = [found["user"].columns, *(join.columns for join in found["order"].joins if join.table == "users")]
    assert shown and all(columns and "password_hash" not in columns for columns in shown)
    flags = tables(table("t", "id", "is_private", "x", kinds={"is_private": "bool"}))
    assert views(propose_views(flags, [], NOBODY_KNOWS, joins=True))["t"].hidden == ()


def test_many_rows_are_counted_and_very_many_are_not_shown() -> None:
    key = points("orders", "user_id", "users", "id")
    two = {name: SHOP[name] for name in ("public.users", "public.orders")}
    some = Sizes({"public.users": 10, "public.orders": 5_000}, {})
    found = joins(views(propose_views(two, [key], some, joins=True))["user"])
    assert found == {"orders": "children", "orders_total": "aggregates"}
    # Few on average, but half of them point at one row.
    celebrity = Sizes({"public.users": 1_000, "public.orders": 10_000}, {("public.orders", "user_id"): 0.5})
    proposal = propose_views(two, [*KEYS[:1], key], celebrity, joins=True)
    assert joins(views(proposal)["user"]) == {
        "manager": "refs",
        "users_by_manager_total": "aggregates",
        "orders_total": "aggregates",
    }


def test_a_part_whose_rows_are_too_many_to_show_has_a_view_of_its_own() -> None:
    sizes = Sizes({"public.orders": 3, "public.order_items": 100_000}, {})
    found = views(propose_views(SHOP, KEYS, sizes, joins=True))
    assert joins(found["order_item"]) == {"order": "refs"}


def test_foreign_keys_that_make_no_join_say_why() -> None:
    email = {"email": "citext"}
    found = propose_views(
        tables(
            table("a", "id", "b_email", "c_id", kinds={"b_email": "citext"}), table("b", "id", "email", kinds=email)
        ),
        [points("a", "b_email", "b", "email"), points("a", "c_id", "c", "id")],
        NOBODY_KNOWS,
        joins=True,
    )
    why = {one.name: one.why for one in found.left_out}
    assert "primary keys" in why["public.a (b_email) → public.b (email)"]
    assert "not captured" in why["public.a (c_id) → public.c (id)"]


def test_a_document_has_no_more_fields_than_an_index_takes() -> None:
    wide = [f"c{n}" for n in range(250)]
    two = tables(table("a", "id", "b_id", "d_id", *wide), table("b", "id", *wide), table("d", "id", "x", "y"))
    found = propose_views(
        two, [points("a", "b_id", "b", "id"), points("a", "d_id", "d", "id")], NOBODY_KNOWS, joins=True
    )
    assert joins(views(found)["a"]) == {"d": "refs"}
    assert any(one.name.startswith("b (b)") and "400 fields" in one.why for one in found.left_out)


def test_joins_that_an_index_has_no_room_for_are_told_once_for_a_view() -> None:
    wide = [f"c{n}" for n in range(250)]
    many = tables(table("a", "id", *wide), *(table(f"b{n}", "id", "a_id", *wide) for n in range(100)))
    found = propose_views(many, [points(f"b{n}", "a_id", "a", "id") for n in range(100)], NOBODY_KNOWS, joins=True)
    told = [one.name for one in found.left_out if one.name.endswith(" of public.a")]
    assert len(told) == 1 and all(f"(b{n})" in told[0] for n in range(1, 100))


def test_names_of_views_and_fields_are_free() -> None:
    two = tables(
        table("item", "id"), table("items", "id", "order", "orders", "order_id"), table("orders", "id", "a", "b")
    )
    keys = [points("items", "order_id", "orders", "id"), points("items", "order", "orders", "id")]
    found = propose_views(two, keys, NOBODY_KNOWS, joins=True)
    assert [view.name for view in found.views] == ["item", "public_item", "order"]
    for view in found.views:
        taken = [*(column.name for column in view.table.columns), *(join.name for join in view.joins)]
        assert len(taken) == len({name.lower() for name in taken})
    assert set(joins(views(found)["order"])) == {"items_by_order", "items_by_order_2"}


# -- roles -------------------------------------------------------------------------------------------------------------


def test_the_usual_role_replicates_if_it_is_there() -> None:
    found = roles(survey(OWNER, HEADWATER, user="own", owner="own"))
    assert (found.user, found.setup_user, found.first) == ("headwater", "own", ())


def test_a_role_that_is_not_there_is_to_be_made() -> None:
    found = roles(survey(OWNER, user="own", owner="own"))
    assert found.user == "headwater" and found.first[0].startswith('CREATE ROLE "headwater" LOGIN REPLICATION')
    asked = roles(survey(replace(OWNER, creates=False), HEADWATER, user="own", owner="own"), "own")
    assert asked.user == "own" and asked.setup_user is None and asked.first == ('ALTER ROLE "own" LOGIN REPLICATION;',)


def test_a_superuser_alone_does_everything() -> None:
    found = roles(survey(ROOT, OWNER, user="root", owner="root"))
    assert (found.user, found.setup_user, found.first) == ("root", None, ())
    assert "superuser" in found.why
    better = roles(survey(ROOT, OWNER, HEADWATER, user="root", owner="own"))
    assert (better.user, better.setup_user, better.why) == ("headwater", "root", "")


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_loads_and_its_views_fit_the_tables() -> None:
    text = written(draft(looked(), name=None, sinks=("elasticsearch", "redis", "iceberg")))
    assert "tell-nobody" not in text
    pipeline = loads(text, "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"})
    assert pipeline.name == "shop" and set(pipeline.sinks) == {"search", "cache", "warehouse"}
    assert pipeline.source.password.get_secret_value() == "a"
    for name in pipeline.views:
        resolve_view(pipeline, Catalogue(SHOP), name)
    # A column that looks like a password is in no warehouse either.
    assert "public.users" not in (pipeline.sinks["warehouse"].tables or ())


def test_history_is_named_where_a_warehouse_is_and_taken_by_uncommenting_it() -> None:
    """Nothing told of it, and what reads a warehouse as it was needs it from the beginning."""
    text = written(draft(looked(), name=None, sinks=("iceberg", "redis")))
    known = {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"}
    assert not loads(text, "p.yaml", known).sinks["warehouse"].history  # type: ignore[union-attr]
    wanted = text.replace("    # history: true", "    history: true")
    assert loads(wanted, "p.yaml", known).sinks["warehouse"].history  # type: ignore[union-attr]
    assert "history" not in written(draft(looked(), name=None, sinks=("redis",)))


def test_what_is_left_out_is_a_comment_whatever_it_says() -> None:
    left_out = (LeftOut("public.x", "because\nof: {this}", "do\n# that"),)
    text = written(draft(looked(left_out=left_out), name="other", sinks=("redis",)))
    assert "# - public.x: because of: {this} (do # that)" in text
    assert loads(text, "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"}).name == "other"


def test_what_was_left_out_is_told_and_what_is_only_good_to_know_apart_from_it() -> None:
    made = draft(looked(notes=(LeftOut("public.orders.created_at", "loses its sign"),)), name="x", sinks=("redis",))
    assert [one.name for one in made.left_out] == ["public.users.password_hash"]
    left_out, _, good = written(made).partition("# Left out:\n")[2].partition("# Good to know:\n")
    assert "public.users.password_hash: in no document: it looks like a secret" in left_out
    assert "public.orders.created_at: loses its sign" in good and "created_at" not in left_out
    # Into a warehouse no document is made of it; why its table is not there is said.
    bare = draft(looked(), name="x", sinks=("iceberg",))
    assert [one.name for one in bare.left_out] == ["public.users"]


def test_what_looks_like_a_variable_is_none() -> None:
    source = Source(host="${HOST}", database="a${b", user="own", tables=("public.any",))
    text = written(draft(replace(looked(), source=source), name="x", sinks=("redis",)))
    pipeline = loads(text, "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"})
    assert (pipeline.source.host, pipeline.source.database) == ("${HOST}", "a${b")


def test_a_view_that_would_be_refused_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.propose.views.not_a_join", lambda key, tables: None)
    other = table("other", "id", "user_key", "x", kinds={"user_key": "text"})
    found = looked(tables=SHOP | tables(other), foreign_keys=(points("other", "user_key", "users", "id"),))
    made = draft(found, name="x", sinks=("redis",))
    assert "other" not in views(made.proposal)
    assert any(one.name == "view other" and "user_key" in one.why for one in made.left_out)


def test_a_schema_that_was_asked_for_as_a_whole_stays_one() -> None:
    text = written(draft(looked(whole=("public",)), name="x", sinks=("redis",)))
    assert '    - "public.*" ' in text and "- public.orders" not in text
    assert loads(text, "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"}).source.tables == ("public.*",)
    assert _schemas(["public.*", "sales.order*", "*.*", "public.*", "orders"]) == ["public"]


def test_a_warehouse_has_no_two_tables_of_one_name() -> None:
    two = tables(table("users", "id"), table("Users", "id"), table("users", "id", schema="other"))
    kept, why = warehouse_tables(two)
    assert kept == ["public.users"] and len(why) == 2
    assert warehouse_tables(tables(table("a", "id"))) == (None, [])


# -- the address -------------------------------------------------------------------------------------------------------


def test_an_address_is_read_as_libpq_reads_it() -> None:
    source, unused = read_address("postgresql://me%40home:p%2Fw@db:6543/shop?sslmode=require&application_name=x")
    assert (source.host, source.port, source.database, source.user) == ("db", 6543, "shop", "me@home")
    assert source.password.get_secret_value() == "p/w" and source.sslmode == "require"
    assert unused == ["application_name"]
    assert read_address("host=db dbname=shop user=me")[0].host == "db"


def test_the_authority_that_an_address_names_goes_into_the_file() -> None:
    source, unused = read_address("postgres://me@db/shop?sslmode=verify-full&sslrootcert=/etc/ssl/own.pem")
    assert source.sslrootcert == "/etc/ssl/own.pem" and unused == []
    text = written(draft(replace(looked(), source=source), name="x", sinks=("redis",)))
    assert "\n  sslmode: verify-full\n  sslrootcert: /etc/ssl/own.pem\n" in text


@pytest.mark.parametrize(
    "text", ["shop", "postgres://u:tell-nobody@h", "postgres://u:tell-nobody@h:x/d", "mysql://u:tell-nobody@h/d"]
)
def test_what_is_no_address_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_address(text)
    assert "tell-nobody" not in str(caught.value)
