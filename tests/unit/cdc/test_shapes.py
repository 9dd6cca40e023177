"""The shapes of tables: what has happened to columns, what they were called, and what is kept of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import NewerFormat, ShapeUnknown, StateError
from cdc.records.debezium_json import Decoder, Fit
from cdc.shapes import Shape, Shapes, column_changes, leaf_print, shape_of, used_changes
from truth.events.logged import Reader

ID = Column("id", "integer", "int4", nullable=False, ordinal=1)
N = Column("n", "integer", "int4", ordinal=2)
A = Column("a", "text", "text", ordinal=3)


def shape(*columns: Column, since: int = 0, oid: int = 9, files: str = "f", filled: tuple[int, ...] = ()) -> Shape:
    return Shape(Table("public", "t", columns, ("id",)), since, oid, files, filled)


def told(old: Shape, new: Shape) -> list[tuple[str, bool]]:
    return [(change.words, change.unlogged) for change in column_changes(old, new)]


def test_each_kind_of_change() -> None:
    old = shape(ID, N, A)
    assert told(old, old) == []
    assert told(old, shape(ID, N)) == [("column a was dropped", False)]
    assert told(shape(ID, N), old) == [("column a was added", False)]
    assert told(shape(ID, N), shape(ID, N, A, filled=(3,))) == [("column a was added", True)]
    assert told(old, shape(ID, N, replace(A, name="b"))) == [("column a was renamed to b", False)]


def test_a_column_that_is_dropped_and_added_again_is_another_one() -> None:
    """Records of before have under its name what the dropped one held: the table is read again for it, and what of them
    does not fit it is no dead letter."""
    again = replace(A, ordinal=4)
    assert told(shape(ID, A), shape(ID, again)) == [("column a was dropped", False), ("column a was added", True)]


B, AGAIN = replace(A, name="b"), replace(A, ordinal=4)


@pytest.mark.parametrize(
    ("looks", "reused"),
    [
        ([(ID, A), (ID,), (ID, AGAIN)], {4}),
        ([(ID, A), (ID, B), (ID, B, AGAIN)], {4}),
        ([(ID, A), (ID,), (ID, replace(B, ordinal=4)), (ID, AGAIN)], {4}),
        ([(ID, N, A), (ID, replace(N, name="x"), A), (ID, replace(N, name="x"), replace(A, name="n"))], {3}),
        ([(ID, N, A), (ID, replace(N, name="a"), replace(A, name="n"))], {2, 3}),
        ([(ID, A), (ID, B), (ID, A)], set()),  # it is its own former name
        ([(ID, A), (ID, A, N)], set()),
    ],
)
def test_records_of_before_may_have_another_columns_values_under_a_name_that_came_back(
    looks: list[tuple[Column, ...]], reused: set[int]
) -> None:
    """A column that was dropped in one look and added in a later one has the same names around it: neither was its
    record of a former shape, nor was any row without a value read, and a sink that came later showed what the dropped
    one had held."""
    known = Shapes({})
    for at, columns in enumerate(looks):
        known, _ = known.with_newer({"public.t": shape(*columns, since=at)})
        known = Shapes.from_json(known.to_json(), "x")
    *_, before, now = known.tables["public.t"]
    assert now.unlogged_since(before) == reused
    told_to = known.told_to(Catalogue({"public.t": now.table})).tables["public.t"]
    assert told_to.since == (len(looks) - 1 if reused else 0)
    unnoted = shape(*looks[-1]).told(told_to)
    assert {one.new.ordinal for one in column_changes(before, unnoted) if one.unlogged and one.new} == reused
    kept = Catalogue.from_json(Catalogue({"public.t": told_to}, "1", 1, "d").to_json()).tables["public.t"]
    assert kept.reused == told_to.reused
    made_again = known.with_newer({"public.t": shape(*looks[-1], oid=10)})[0].tables["public.t"][-1]
    assert made_again.table.reused == (), "of another table numbers say nothing"


def test_shapes_of_an_older_version_are_read_and_their_names_told() -> None:
    known = Shapes({"public.t": (shape(ID, A), shape(ID, since=1), shape(ID, AGAIN, since=2))})
    raw = json.loads(known.to_json())
    for one in raw["tables"]["public.t"]:
        del one["table"]["reused"]
    older = Shapes.from_json(json.dumps(raw), "x")
    assert older == known
    assert older.told_to(Catalogue({"public.t": shape(ID, AGAIN).table})).tables["public.t"].reused == ("a",)


def test_order_defaults_and_null_are_nothing() -> None:
    assert told(shape(ID, N, A), shape(A, N, ID)) == []
    assert told(shape(ID, N), shape(ID, replace(N, nullable=False))) == []
    assert shape(ID, N).same_as(shape(ID, N, files="g", filled=(2,)))


@pytest.mark.parametrize(
    ("was", "now", "files", "unlogged"),
    [
        (("varchar(8)", "varchar"), ("text", "text"), "f", False),
        (("varchar(8)", "varchar"), ("character varying(20)", "varchar"), "f", False),
        (("varchar(8)", "varchar"), ("text", "text"), "other", True),  # by way of USING
        (("integer", "int4"), ("bigint", "int8"), "other", True),
        (("text", "text"), ("integer", "int4"), "other", True),
    ],
)
def test_values_stay_only_where_postgres_has_not_written_them(
    was: tuple[str, str], now: tuple[str, str], files: str, unlogged: bool
) -> None:
    old, new = (Column("a", *kind, ordinal=2) for kind in (was, now))
    assert [change.unlogged for change in column_changes(shape(ID, old), shape(ID, new, files=files))] == [unlogged]


def test_a_wider_numeric_keeps_its_values_and_one_of_another_scale_does_not() -> None:
    def numeric(precision: int, scale: int) -> Column:
        return Column("p", f"numeric({precision},{scale})", "numeric", precision, scale, ordinal=2)

    assert told(shape(ID, numeric(8, 2)), shape(ID, numeric(12, 2))) == [
        ("column p changed from numeric(8,2) to numeric(12,2)", False)
    ]
    assert column_changes(shape(ID, numeric(8, 2)), shape(ID, numeric(12, 4), files="g"))[0].unlogged


def test_a_new_label_is_nothing_to_values_and_another_name_of_one_is() -> None:
    def mood(*labels: str) -> Column:
        return Column("m", "mood", "mood", enum_values=labels, ordinal=2)

    old = shape(ID, mood("sad", "ok"))
    assert column_changes(old, shape(ID, mood("sad", "ok", "happy"))) == []
    (change,) = column_changes(old, shape(ID, mood("low", "ok")))
    assert (change.words, change.unlogged) == ("labels of mood were changed (column m)", True)


@pytest.mark.parametrize(
    ("labels", "unlogged"),
    [
        (("sad", "ok", "happy"), None),
        (("awful", "sad", "fine", "ok"), None),
        (("ok", "sad"), True),  # swapped by three renames
        (("low", "ok", "sad"), True),  # renamed, and added anew
    ],
)
def test_labels_that_lost_their_order_were_renamed(labels: tuple[str, ...], unlogged: bool | None) -> None:
    """As sets they had stayed what they were: documents kept a label that no row had any more."""
    old, new = (Column("m", "mood", "mood", enum_values=one, ordinal=2) for one in (("sad", "ok"), labels))
    found = [change.unlogged for change in column_changes(shape(ID, old), shape(ID, new))]
    assert found == ([] if unlogged is None else [unlogged])


def test_a_column_whose_default_was_dropped_again_may_be_filled_all_the_same() -> None:
    """Its values are in no log, though Postgres has no default of it any more."""
    old = shape(ID, N)
    assert told(old, shape(ID, N, A)) == [("column a was added", False)]
    assert told(old, shape(ID, N, replace(A, nullable=False))) == [("column a was added", True)]
    assert told(old, shape(ID, N, A, files="g")) == [("column a was added", True)]
    generated = replace(old, table=replace(old.table, generated=("a",)))
    assert told(generated, shape(ID, N, A)) == [("column a was added", True)]  # DROP EXPRESSION


def with_rows(one: Shape, *at: str) -> Shape:
    return replace(one, written=tuple(zip((column.ordinal for column in one.table.columns), at, strict=True)))


def test_values_that_were_written_anew_under_the_type_that_they_had_are_noticed() -> None:
    """ALTER … TYPE text USING lower(a): sinks kept what was until each row was written again."""
    old, new = with_rows(shape(ID, A), "1", "1"), with_rows(shape(ID, A, files="g"), "1", "2")
    assert not old.same_as(new)
    assert told(old, new) == [("values of column a were written anew", True)]
    renamed = with_rows(shape(ID, replace(A, name="b"), files="g"), "1", "2")
    assert [change.kind for change in column_changes(old, renamed)] == ["renamed", "rewritten"]
    assert Shapes({"public.t": (old,)}).with_newer({"public.t": new})[1] == {"public.t": (old, new)}
    assert Shapes.from_json(Shapes({"public.t": (new,)}).to_json(), "x").newest("public.t") == new


def test_files_alone_or_a_column_alone_are_no_other_values() -> None:
    old = with_rows(shape(ID, A), "1", "1")
    vacuumed = with_rows(shape(ID, A, files="g"), "1", "1")
    statistics = with_rows(shape(ID, A), "1", "2")
    for now in (vacuumed, statistics):
        assert now.same_as(old) and told(old, now) == []
        known, changed = Shapes({"public.t": (old,)}).with_newer({"public.t": now})
        assert not changed
        assert known.newest("public.t") == now  # what the next look is held against
    other_column = with_rows(shape(ID, A, replace(N, ordinal=4), files="g"), "1", "1", "2")
    assert told(old, other_column) == [("column n was added", True)]


def test_a_file_of_before_these_were_kept_tells_of_nothing_written_anew() -> None:
    raw = json.loads(Shapes({"public.t": (with_rows(shape(ID, A), "1", "1"),)}).to_json())
    del raw["tables"]["public.t"][0]["written"]
    old = Shapes.from_json(json.dumps(raw), "x").newest("public.t")
    now = with_rows(shape(ID, A, files="g"), "1", "2")
    assert old is not None and now.same_as(old) and told(old, now) == []


def parted(one: Shape, leaves: dict[int, int], *, whole: bool = False) -> Shape:
    """A partitioned table with leaves: oid -> file; ``whole`` as older versions kept it, as one text."""
    parts = tuple((oid, f"t_{oid}", "7") for oid in leaves)
    pairs = tuple(leaves.items())
    return replace(one, parts=parts, files=leaf_print(pairs) if whole else "", leaves=None if whole else pairs)


@pytest.mark.parametrize("whole", [False, True])
def test_a_partition_that_comes_is_no_other_file_and_one_written_anew_is(whole: bool) -> None:
    """With one ALTER beside it the whole table was read again, and with policy.schema pause its flows stood still."""
    old = parted(with_rows(shape(ID, A), "1", "1"), {11: 1, 12: 2}, whole=whole)
    new = with_rows(shape(ID, A), "1", "2")
    came = parted(new, {11: 1, 12: 2, 13: 3})
    assert came.same_as(old) and told(old, came) == []
    assert told(old, parted(with_rows(shape(ID, A, replace(N, ordinal=4)), "1", "2", "2"), {11: 1, 12: 2, 13: 3})) == [
        ("column n was added", False)
    ]
    anew = parted(new, {11: 1, 12: 9, 13: 3})
    assert told(old, anew) == [("values of column a were written anew", True)]
    went = parted(new, {11: 1})
    assert went.same_as(old) is not whole  # what was kept as one text can't be told apart: read for nothing


def test_a_foreign_leaf_has_no_file_in_the_text_that_older_versions_kept() -> None:
    assert leaf_print([(12, 5), (11, 7), (13, 0)]) == "55afc673cd17bf0f0f691d09cecd8ab9"


def test_what_was_in_no_log_is_told_at_the_change_and_not_by_what_files_became_since() -> None:
    """A rename, and weeks later VACUUM FULL or a partition: records of before that do not convert were given up."""
    old = with_rows(shape(ID, A), "1", "1")
    renamed = with_rows(shape(ID, replace(A, name="b"), since=5), "1", "2")
    wider = with_rows(shape(ID, replace(A, name="b", type_name="varchar", base_type="varchar"), since=7), "1", "3")
    known = Shapes({"public.t": (old,)})
    for seen in (renamed, replace(renamed, files="g"), replace(wider, files="g"), replace(wider, files="h")):
        known, _ = known.with_newer({"public.t": seen})
        for kept in (known, Shapes.from_json(known.to_json(), "x")):
            assert kept.told_to(Catalogue({"public.t": seen.table})).tables["public.t"].since == 0
    assert known.newest("public.t") == replace(wider, files="h")


def test_a_file_of_before_tells_what_it_told_and_keeps_to_it() -> None:
    old, new = shape(ID, N), shape(ID, N, A, since=5)
    raw = json.loads(Shapes({"public.t": (old, new)}).to_json())
    for one in raw["tables"]["public.t"]:
        del one["leaves"], one["unlogged"]
    assert shape_of(raw["tables"]["public.t"][1]).unlogged is None
    known = Shapes.from_json(json.dumps(raw), "x")
    assert known.told_to(Catalogue({"public.t": new.table})).tables["public.t"].since == 0
    later = known.with_newer({"public.t": replace(new, files="g", since=9)})[0]
    assert later.told_to(Catalogue({"public.t": new.table})).tables["public.t"].since == 0
    filled = shape(ID, N, A, since=5, filled=(3,))
    told_to = Shapes({"public.t": (old, filled)}).told_to(Catalogue({"public.t": new.table}))
    assert told_to.tables["public.t"].since == 5


def test_of_a_table_made_again_columns_are_the_same_by_name() -> None:
    other = shape(replace(ID, ordinal=2), replace(N, ordinal=1), oid=10)
    assert told(shape(ID, N), other) == []
    assert told(shape(ID), other) == [("column n was added", True)]


def test_former_names_as_long_as_nothing_else_bears_them() -> None:
    first, second = shape(ID, N, A), shape(ID, N, replace(A, name="b"), since=5)
    third = shape(ID, N, replace(A, name="c"), since=6)
    known = Shapes({"public.t": (first, second, third)})
    assert known.renamed("public.t") == (("a", "c"), ("b", "c"))
    taken = shape(ID, replace(N, name="a"), replace(A, name="c"), since=7)
    assert Shapes({"public.t": (first, third, taken)}).renamed("public.t") == (("n", "a"),)
    assert known.renamed("public.other") == ()


def test_what_was_seen_is_added_once() -> None:
    known, changed = Shapes({}).with_newer({"public.t": shape(ID, since=3)})
    assert not changed
    assert known.newest("public.t") == shape(ID)  # nothing is known of before
    again, changed = known.with_newer({"public.t": shape(ID, since=4)})
    assert (again, changed) == (known, {})
    newer, changed = known.with_newer({"public.t": shape(ID, N, since=5)})
    assert changed == {"public.t": (shape(ID), shape(ID, N, since=5))}
    rewritten, changed = newer.with_newer({"public.t": shape(ID, N, since=9, files="g")})
    assert not changed
    assert rewritten.newest("public.t") == shape(ID, N, since=5, files="g")


def test_tables_are_told_what_their_columns_were_called_and_since_when_their_values_hold() -> None:
    old, new = shape(ID, N, A), shape(ID, replace(N, base_type="int8", type_name="bigint"), A, since=7, files="g")
    latest = replace(new, table=replace(new.table, columns=new.table.columns[:2]), since=8)
    told_to = Shapes({"public.t": (old, new, latest)}).told_to(Catalogue({"public.t": latest.table}))
    assert told_to.tables["public.t"].since == 7
    assert Shapes({"public.t": (old,)}).told_to(Catalogue({"public.t": old.table})).tables["public.t"].since == 0


def test_it_survives_the_disk_and_refuses_what_is_newer() -> None:
    known = Shapes({"public.t": (shape(ID, N), shape(ID, N, A, since=5, filled=(3,)))})
    assert Shapes.from_json(known.to_json(), "x") == known
    with pytest.raises(NewerFormat, match="x was written by a newer Headwater"):
        Shapes.from_json(known.to_json().replace('"format": 1', '"format": 99'), "x")
    with pytest.raises(StateError, match="x can't be read"):
        Shapes.from_json("{", "x")


def test_only_changes_of_used_columns() -> None:
    changes = column_changes(shape(ID, N, A), shape(ID, N, replace(A, name="b")))
    assert list(used_changes(changes, {"a"})) == list(used_changes(changes, {"b"})) == changes
    assert list(used_changes(changes, {"n"})) == []


def test_another_unique_index_is_no_other_shape_and_is_remembered() -> None:
    """A view that joins by it is resolved with the table as it was, too, when a column changes one day."""
    old = shape(ID, N)
    new = replace(old, table=replace(old.table, unique_keys=(("n",),)))
    shapes, changed = Shapes({"public.t": (old,)}).with_newer({"public.t": new})
    assert not changed and old.same_as(new)
    again = Shapes.from_json(shapes.to_json(), "shapes.json").newest("public.t")
    assert again is not None and again.table.unique_keys == (("n",),)


def test_a_record_of_a_shape_in_which_a_present_name_was_another_columns() -> None:
    """History kept what the dropped column had held as the renamed one's, for ever: it was read behind both changes."""
    shapes = Shapes({"public.t": (shape(ID, N, A), shape(ID, N), shape(ID, replace(N, name="a")))})
    seen = Catalogue({"public.t": shapes.tables["public.t"][-1].table}, "7", 1, "d")
    table = Catalogue.from_json(shapes.told_to(seen).to_json()).tables["public.t"]
    rows: list[tuple[dict[str, Any], int]] = [({"n": 5, "a": "x"}, 5), ({"n": 6}, 6), ({"a": 7}, 7)]
    for held, read in rows:
        assert decoded(Decoder(table), held)["a"] == read
    assert shapes.moved("public.other") == ()


def decoded(decoder: Decoder, held: dict[str, Any], lsn: int = 10) -> dict[str, Any]:
    place = {"schema": "public", "table": "t", "snapshot": "false", "sequence": None, "txId": 1, "ts_ms": 1}
    row = {"id": 1, **held}
    event = {"op": "c", "before": None, "after": row, "source": {"lsn": lsn, **place}, "ts_ms": 1}
    after = decoder.decode(b'{"id": 1}', orjson.dumps(event), "t", 0, 0).after
    assert after is not None
    read = Reader(decoder.table, list(decoder.table.by_name))(row)
    assert read == {name: after.get(name) for name in read}, "nor does the second opinion misread it"
    return after


X = Column("x", "text", "text", ordinal=5)


@pytest.mark.parametrize(
    ("looks", "held", "read"),
    [
        ([(ID, A), (ID, replace(A, name="a_old"), AGAIN)], {"a": "was"}, {"a_old": "was", "a": None}),
        ([(ID, A), (ID, B), (ID, B, AGAIN)], {"a": "was"}, {"b": "was", "a": None}),
        ([(ID, A), (ID, B), (ID, B, AGAIN)], {"b": "was"}, {"b": "was"}),
        ([(ID, N, A), (ID, N), (ID, N, AGAIN, X)], {"n": 1, "a": "gone"}, {"n": 1, "a": None}),
        ([(ID, N, X), (ID,), (ID, replace(X, ordinal=6)), (ID, replace(A, ordinal=6))], {"n": 1, "x": "gone"}, {}),
    ],
    ids=["in one look", "in two looks", "of in between", "added again beside another one", "under a former name"],
)
def test_a_record_whose_name_a_new_column_bears(
    looks: list[tuple[Column, ...]], held: dict[str, Any], read: dict[str, Any]
) -> None:
    """History kept the former column's value as the new one's for ever, and null under the name that it has now."""
    known = Shapes({"public.t": tuple(shape(*columns, since=at) for at, columns in enumerate(looks))})
    table = known.told_to(Catalogue({"public.t": shape(*looks[-1]).table})).tables["public.t"]
    after = decoded(Decoder(table), held)
    assert {name: after[name] for name in table.by_name if name != "id" and name in after} == read


def test_a_newer_record_with_the_names_of_a_former_shape_waits_for_a_look() -> None:
    """The column may have been dropped that had made the difference: then nothing of it is another column's."""
    known = Shapes({"public.t": (shape(ID, A), shape(ID, B, AGAIN, since=9))})
    table = known.told_to(Catalogue({"public.t": shape(ID, B, AGAIN).table})).tables["public.t"]
    decoder = Decoder(table, fit=Fit(50, frozenset(("id", "a"))))
    assert decoded(decoder, {"a": "was"}, lsn=50) == {"id": 1, "a": None, "b": "was"}
    with pytest.raises(ShapeUnknown, match="has the columns of a former shape"):
        decoded(decoder, {"a": "new"}, lsn=51)


def test_a_shape_that_can_not_be_told_from_a_newer_one_is_not_guessed_at() -> None:
    swapped = shape(ID, replace(N, name="a"), replace(A, name="n"))
    assert Shapes({"public.t": (shape(ID, N, A), swapped)}).moved("public.t") == ()
    old = shape(ID, replace(N, name="price"), replace(A, name="price_new"))
    new = shape(ID, replace(N, name="price_old"), replace(A, name="price"))
    pairs = (("id", "id"), ("price", "price_old"), ("price_new", "price"))
    assert Shapes({"public.t": (old, new)}).moved("public.t") == ((("id", "price", "price_new"), pairs),)
