"""What a changed table means for a view: where its Spark SQL names the column, and where its index had one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import ConfigError
from cdc.fold import FoldView
from cdc.pipeline import Pipeline, loads
from cdc.resolve.views import resolve_view
from cdc.shapes import Shape, Shapes
from cdc.timed import Measure, WindowView
from cdc.view import View
from operations.schema.decide import Decision, Verdict, decide, mapped_after
from tests.support.migrations import BEFORE, MIGRATIONS

FILE = """
version: 1
name: p
source: {database: d, user: u, tables: [public.things, public.people]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://127.0.0.1:1"}
views: {thing: {root: things, VIEW}}
row_store: {url: "redis://127.0.0.1:1"}
sinks:
  search: {type: elasticsearch, url: "http://127.0.0.1:1", view: thing}
  cache: {type: redis, url: "redis://127.0.0.1:1", view: thing}
  warehouse: {type: iceberg, catalog_uri: x, warehouse: x, namespace: n, view: thing}
"""
PEOPLE = Table(
    "public",
    "people",
    (
        Column("id", "integer", "int4", nullable=False, ordinal=1),
        Column("a", "text", "text", ordinal=2),
        Column("age", "integer", "int4", ordinal=3),
    ),
    ("id",),
)
OF_PEOPLE = Shape(PEOPLE, 0, 2, "p")
DONE = {one.name: one.made(BEFORE) for one in MIGRATIONS}
RENAMED, WIDER, TEXT, DROPPED = (
    DONE[name] for name in ("rename a column", "integer to bigint", "varchar(8) to text", "drop a column")
)
JOINED = "refs: {owner: {table: people, on: {n: id}, columns: [id, a, age]}}"


def of_people(*columns: Column, files: str = "p") -> Shape:
    return Shape(replace(PEOPLE, columns=columns), 100, 2, files)


PERSON_RENAMED = of_people(PEOPLE.columns[0], replace(PEOPLE.columns[1], name="label"), PEOPLE.columns[2])
PERSON_WIDER = of_people(
    *PEOPLE.columns[:2], replace(PEOPLE.columns[2], type_name="bigint", base_type="int8"), files="q"
)


def resolved(pipeline: Pipeline, catalogue: Catalogue) -> Any:
    try:
        return resolve_view(pipeline, catalogue, "thing")
    except ConfigError as error:
        return error


def decided(view: str, now: Shape, sink: str = "search", was: Shape = BEFORE) -> Decision:
    pipeline = loads(FILE.replace("VIEW", view))
    known = {"public.things": was, "public.people": OF_PEOPLE}
    name = now.table.qualified
    before = Catalogue({table: shape.table for table, shape in known.items()})
    after = Shapes({name: (known[name], now)}).told_to(replace(before, tables={**before.tables, name: now.table}))
    told = replace(now, table=after.tables[name])
    return decide(known[name], told, resolved(pipeline, before), resolved(pipeline, after), pipeline.sinks[sink])


@pytest.mark.parametrize("sink", ["search", "cache", "warehouse"])
@pytest.mark.parametrize(
    "view",
    [
        'fields: {big: "upper(a)"}',
        "where: \"A <> 'x'\"",
        'columns: [id, a], fields: {big: "upper(`a`)"}',
        'columns: [id], where: "a IS NULL"',
    ],
)
def test_a_renamed_column_that_an_expression_names_is_refused_also_if_documents_show_it(view: str, sink: str) -> None:
    """`plan` said in place, and then every flow of the sink stood: Spark takes none of the expressions."""
    decision = decided(view, RENAMED, sink)
    assert (decision.verdict, decision.why, decision.stops) == (Verdict.REFUSE, ("its Spark SQL names a",), True)


@pytest.mark.parametrize("word", ["end", "from", "all"])
@pytest.mark.parametrize("joins", ["", "refs: {owner: {table: people, on: {n: id}}}, "])
def test_a_renamed_column_that_is_called_like_a_word_of_spark_sql_is_seen(word: str, joins: str) -> None:
    """Spark reserves no word: `datediff(end, day)` was not seen to name `end`, and all of the generation stopped."""
    columns = [replace(column, name=word) if column.name == "a" else column for column in BEFORE.table.columns]
    was = replace(BEFORE, table=replace(BEFORE.table, columns=tuple(columns)))
    renamed = [replace(column, name="label") if column.name == word else column for column in columns]
    now = replace(RENAMED, table=replace(was.table, columns=tuple(renamed)))
    view = f"{joins}fields: {{big: \"CASE WHEN n > 3 THEN concat({word}, 'x') END\"}}"
    assert decided(view, now, was=was).why == (f"its Spark SQL names {word}",)
    assert decided(view.replace(word, "code"), now, was=was).verdict is not Verdict.REFUSE


def test_a_dropped_column_that_an_expression_names_is_refused_though_all_columns_are_shown() -> None:
    assert decided('where: "gone IS NULL"', DROPPED).verdict is Verdict.REFUSE


@pytest.mark.parametrize(
    "view",
    [
        'fields: {all: "to_json(struct(*))"}',
        "fields: {big: \"transform(array(mood), a -> upper(a))[0] || 'a'\"}",
        'where: "CAST(n AS string) = code"',
    ],
)
def test_an_expression_that_does_not_name_the_renamed_column_goes_on(view: str) -> None:
    assert decided(view, RENAMED).verdict is Verdict.READ_AGAIN


@pytest.mark.parametrize(
    ("view", "now", "verdict"),
    [
        (f'{JOINED}, fields: {{big: "upper(a)"}}', RENAMED, Verdict.REFUSE),
        (f'{JOINED}, where: "owner.a = a"', RENAMED, Verdict.REFUSE),
        (f'{JOINED}, where: "owner.a = code"', RENAMED, Verdict.NEW_GENERATION),  # another table's
        (f'{JOINED}, where: "owner.a = code"', PERSON_RENAMED, Verdict.REFUSE),
        (f'{JOINED}, where: "Owner.`A` = code"', PERSON_RENAMED, Verdict.REFUSE),
        (f'{JOINED}, where: "owner.age > 5 AND a = code"', PERSON_RENAMED, Verdict.IN_PLACE),
    ],
)
def test_a_joined_views_expressions_are_refused_for_what_their_row_lacks_alone(
    view: str, now: Shape, verdict: Verdict
) -> None:
    assert decided(view, now).verdict is verdict


@pytest.mark.parametrize("value", ["max(age * 2)", "max(age)"])
def test_an_aggregate_of_a_renamed_column_is_refused(value: str) -> None:
    renamed = of_people(*PEOPLE.columns[:2], replace(PEOPLE.columns[2], name="years"))
    most = f"columns: [id], aggregates: {{most: {{table: people, on: {{id: id}}, value: '{value}'}}}}"
    assert decided(most, renamed).verdict is Verdict.REFUSE


def test_a_fold_and_a_window_that_name_a_renamed_column_are_refused() -> None:
    fold = FoldView("v", BEFORE.table, ("id",), (("id", "id"),), initial="struct(0)", step="state.n + event.n")
    window = WindowView(
        "v", BEFORE.table, ("id",), (), time="at", by={"x": "upper(a)"}, measures={"n": Measure("sum", "n")}
    )
    sink = loads(FILE.replace("VIEW", "columns: [id]")).sinks["search"]

    def verdict(view: View, name: str) -> Verdict:
        columns = tuple(replace(c, name="other") if c.name == name else c for c in BEFORE.table.columns)
        now = replace(BEFORE, table=replace(BEFORE.table, columns=columns), since=100)
        return decide(BEFORE, now, view, replace(view, table=now.table), sink).verdict

    assert [verdict(fold, name) for name in ("n", "code")] == [Verdict.REFUSE, Verdict.NOTHING]
    assert [verdict(window, name) for name in ("n", "a", "code")] == [Verdict.REFUSE, Verdict.REFUSE, Verdict.NOTHING]


# -- a joined view that shows all columns: reading an unchanged row again makes no document ----------------------------

ALL_BELOW = "columns: [id], refs: {owner: {table: people, on: {n: id}}}"


def of_things(*columns: Column) -> Shape:
    return replace(BEFORE, table=replace(BEFORE.table, columns=columns), since=100)


def swapped() -> Shape:
    names = {"code": "gone", "gone": "code"}
    return of_things(*(replace(column, name=names.get(column.name, column.name)) for column in BEFORE.table.columns))


@pytest.mark.parametrize("sink", ["search", "cache"])
@pytest.mark.parametrize(
    ("view", "now"),
    [
        (JOINED, RENAMED),
        (JOINED, swapped()),
        (JOINED, DROPPED),
        (JOINED, DONE["add a nullable column"]),
        (ALL_BELOW, PERSON_RENAMED),
        (ALL_BELOW, of_people(PEOPLE.columns[0], PEOPLE.columns[2])),
        (ALL_BELOW, of_people(*PEOPLE.columns, Column("note", "text", "text", ordinal=4))),
    ],
)
def test_a_joined_view_whose_documents_get_other_fields_is_made_anew(view: str, now: Shape, sink: str) -> None:
    """After RENAME it went on in place, and a document had the former name until one of its rows changed."""
    assert decided(view, now, sink).verdict is Verdict.NEW_GENERATION


@pytest.mark.parametrize(
    ("view", "now"),
    [
        ("columns: [id, a], " + JOINED, RENAMED),
        (JOINED, PERSON_RENAMED),
        ("columns: [id], children: {all: {table: people, on: {id: age}, value: a}}", PERSON_RENAMED),
    ],
)
def test_a_joined_view_whose_file_names_the_renamed_column_goes_on_in_place(view: str, now: Shape) -> None:
    for sink in ("search", "cache"):
        assert decided(view, now, sink).verdict is Verdict.IN_PLACE


def test_a_joined_tables_own_column_is_renamed_for_all_rows_at_once() -> None:
    assert decided(JOINED, RENAMED, "warehouse").verdict is Verdict.IN_PLACE
    assert decided(ALL_BELOW, PERSON_RENAMED, "warehouse").verdict is Verdict.NEW_GENERATION  # a struct's field


# -- `mapping:` that names a field which goes --------------------------------------------------------------------------


def asked(now: Shape, mapping: str, sink: str = "search", view: str = "") -> tuple[str, ...]:
    more = f", view: thing, mapping: {{{mapping}}}"
    pipeline = loads(FILE.replace(", VIEW", view).replace(", view: thing", more, 1))
    before = Catalogue({"public.things": BEFORE.table})
    after = Shapes({"public.things": (BEFORE, now)}).told_to(Catalogue({"public.things": now.table}))
    told = replace(now, table=after.tables["public.things"])
    return decide(BEFORE, told, resolved(pipeline, before), resolved(pipeline, after), pipeline.sinks[sink]).asks


def test_a_field_that_goes_and_that_the_mapping_names_is_said_to_be_taken_out_of_it() -> None:
    """Flows went on, and the next generation and `apply` were refused for it, again and again."""
    assert asked(DROPPED, "gone: {index: false}, a: {index: false}") == ("take `gone` out of `mapping:`",)
    assert asked(RENAMED, "gone: {index: false}, a: {index: false}") == ("take `a` out of `mapping:`",)
    assert asked(RENAMED, "a: {index: false}", view=", columns: [id, a]") == ()  # it keeps the file's name
    assert asked(DROPPED, "gone: {index: false}", "cache") == ()


# -- a name that another column bore in an earlier look ----------------------------------------------------------------

A, N = (BEFORE.table.by_name[name] for name in ("a", "n"))
REST = tuple(column for column in BEFORE.table.columns if column.name not in ("a", "n"))
ANEW = replace(A, ordinal=20)


@pytest.mark.parametrize("sink", ["search", "cache", "warehouse"])
@pytest.mark.parametrize("view", ["", ", columns: [id, a]"])
@pytest.mark.parametrize(
    "looks",
    [
        [(A, N), (N,), (N, ANEW)],
        [(A, N), (replace(A, name="b"), N), (replace(A, name="b"), N, ANEW)],
        [(A, N), (replace(A, name="b"), N), (replace(A, name="b"), replace(N, name="a"))],
    ],
    ids=["dropped and added again", "renamed, and another one added", "renamed, and another one renamed"],
)
def test_a_name_that_another_column_bore_in_an_earlier_look_is_read_for_all_rows(
    looks: list[tuple[Column, ...]], view: str, sink: str
) -> None:
    """Only rows in which the new one is not null were read: a sink that was filled from the log then showed in all
    others what the former one had held. In one look all of them are read."""
    shapes = tuple(
        replace(BEFORE, table=replace(BEFORE.table, columns=(*REST, *columns)), since=100 * at)
        for at, columns in enumerate(looks)
    )
    pipeline, name = loads(FILE.replace(", VIEW", view)), "public.things"
    _, before, after = (
        Shapes({name: shapes[:seen]}).told_to(Catalogue({name: shapes[seen - 1].table})) for seen in (1, 2, 3)
    )
    was = resolved(pipeline, before)
    if isinstance(was, ConfigError):
        return  # it stands until the file is another one: what is there is read again for that
    told = shapes[-1].told(after.tables[name])
    assert decide(shapes[-2], told, was, resolved(pipeline, after), pipeline.sinks[sink]).read == ""


# -- what is computed of a column of another type ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "now", "verdict"),
    [
        (f'columns: [id], {JOINED}, fields: {{twice: "n * 2"}}', WIDER, Verdict.NEW_GENERATION),
        (f'columns: [id], {JOINED}, where: "n > 2"', WIDER, Verdict.READ_AGAIN),  # true or false, as before
        ('columns: [id], fields: {twice: "n * 2"}', WIDER, Verdict.NEW_GENERATION),
        ('columns: [id], where: "n > 2"', WIDER, Verdict.READ_AGAIN),
        ('columns: [id], fields: {big: "upper(a)"}', TEXT, Verdict.IN_PLACE),  # a string in Spark, as it was
        (
            "columns: [id], refs: {owner: {table: people, on: {n: id}, columns: [a]}}, fields: {b: 'owner.age * 2'}",
            PERSON_WIDER,
            Verdict.NEW_GENERATION,
        ),
        (
            "columns: [id], aggregates: {most: {table: people, on: {id: id}, value: 'max(age * 2)'}}",
            PERSON_WIDER,
            Verdict.NEW_GENERATION,
        ),
        (
            "columns: [id], aggregates: {most: {table: people, on: {id: id}, value: 'count(age * 2)'}}",
            PERSON_WIDER,
            Verdict.READ_AGAIN,
        ),
    ],
)
def test_what_is_computed_of_another_type_needs_an_index_of_its_own(view: str, now: Shape, verdict: Verdict) -> None:
    """A joined view's expressions were not looked at: Elasticsearch refused the mapping, and all plain views stood."""
    assert decided(view, now).verdict is verdict
    assert decided(view, now, "cache").verdict < Verdict.NEW_GENERATION


def test_a_table_has_a_new_generation_for_what_is_computed_of_a_shown_column_of_another_type() -> None:
    assert decided('columns: [id, n], fields: {twice: "n * 2"}', WIDER, "warehouse").verdict is Verdict.NEW_GENERATION


# -- fields that an index has of columns that are gone -----------------------------------------------------------------


def test_a_field_of_a_column_that_is_gone_is_mapped_as_it_was() -> None:
    """No index forgets one: DROP n (integer), and later RENAME n_new (bigint) TO n, was refused by it for good."""
    pipeline = loads(FILE.replace(", VIEW", ""))
    number, text = BEFORE.table.by_name["n"], BEFORE.table.by_name["code"]
    new = replace(number, name="n_new", type_name="bigint", base_type="int8", ordinal=20)
    rest = tuple(column for column in BEFORE.table.columns if column not in (number, text))
    shapes = [
        replace(BEFORE, table=replace(BEFORE.table, columns=columns), since=at)
        for at, columns in enumerate(
            [
                (*rest, number, new),
                (*rest, new),
                (*rest, replace(new, name="n")),
                (*rest, new, replace(number, ordinal=21)),
            ]
        )
    ]

    def view(shape: Shape) -> View:
        return resolve_view(pipeline, Catalogue({"public.things": shape.table}), "thing")

    def told(old: Shape, new: Shape, mapped: Any, sink: str = "search") -> Verdict:
        return decide(old, new, view(old), view(new), pipeline.sinks[sink], mapped).verdict

    expanded, contracted, renamed, back = shapes
    dropped = decide(expanded, contracted, view(expanded), view(contracted), pipeline.sinks["search"])
    assert dropped.verdict is Verdict.READ_AGAIN
    mapped = mapped_after(dropped, view(expanded), view(contracted), pipeline.sinks["search"], {})
    assert mapped["n"] == {"type": "integer"}
    assert told(contracted, renamed, mapped) is Verdict.NEW_GENERATION
    assert told(contracted, back, mapped) is Verdict.IN_PLACE  # of the type that it had
    assert told(contracted, renamed, {}) is Verdict.READ_AGAIN  # an index that never had it
    # What adds a field is nothing to remember, nor is anything where targets forget.
    added = Decision(Verdict.IN_PLACE)
    assert mapped_after(added, view(contracted), view(back), pipeline.sinks["search"], mapped) is mapped
    assert mapped_after(dropped, view(expanded), view(contracted), pipeline.sinks["cache"], {}) == {}
    assert (
        mapped_after(Decision(Verdict.NEW_GENERATION), view(expanded), view(contracted), pipeline.sinks["search"], {})
        == {}
    )
