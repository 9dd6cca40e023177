"""`headwater test`: what passes, what differs, what is refused; views without Spark SQL need no Java here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc.errors import HeadwaterError
from console.cli.main import cli

FILE = """\
version: 1
name: shop
source: {database: shop, user: u, password: "${NOT_SET_ANYWHERE}", tables: ["public.*"]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
row_store: {url: "redis://127.0.0.1:1/0"}
views:
  customer: {root: customers}
  line: {root: lines}
  card:
    root: orders
    refs: {customer: {table: customers, on: {customer_id: id}, columns: [name]}}
    children: {lines: {table: lines, on: {id: order_id}, order_by: line desc, columns: [line, price]}}
    aggregates: {sum: {table: lines, on: {id: order_id}, value: sum(price)}}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", views: [customer, card, line]}
"""
HEAD = """\
version: 1
tables:
  customers: {columns: {id: int, name: text not null, seen: timestamptz, extra: jsonb, ok: "enum(yes, no)"}, key: [id]}
  orders: {columns: {id: int, customer_id: int}, key: [id]}
  lines: {columns: {order_id: int, line: smallint, price: "numeric(10, 2)"}, key: [order_id, line]}
defaults: {customers: {name: Ann}}
tests:
"""
GOOD = """\
  - name: Everything moves
    given:
      customers: [{id: 1}]
      orders: [{id: 7, customer_id: 1}]
      lines: [{order_id: 7, line: 1, price: 1.5}, {order_id: 7, line: 2, price: "2.25"}]
    then:
      - {update: customers, key: 1, set: {name: Anna, seen: 2024-02-29T12:00:00+02:00, extra: {b: 1, a: [null]}}}
      - {insert: lines, row: {order_id: 7, line: 3}}
      - {update: lines, key: {order_id: 7, line: 1}, set: {line: 4}}
      - {delete: lines, key: [7, 2]}
    expect:
      customer:
        - key: 1
          document: {id: 1, name: Anna, seen: 2024-02-29T10:00:00Z, extra: {a: [null], b: 1.0}, ok: null}
      card:
        - key: 7
          document:
            id: 7
            customer_id: 1
            customer: {name: Anna}
            lines: [{line: 4, price: "1.50"}, {line: 3, price: null}]
            sum: "1.50"
      line:
        - {key: [7, 1], absent: true}
        - {key: [7, 2], absent: true}
        - {key: [7, 4], document: {order_id: 7, line: 4, price: "1.50"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE)
    (tmp_path / "tests").mkdir()
    return path


def call(file: Path, tests: str, *options: str) -> tuple[int, str]:
    (file.parent / "tests" / "a.yaml").write_text(HEAD + tests)
    done = CliRunner().invoke(cli, ["test", str(file), *options])
    if isinstance(done.exception, HeadwaterError):
        return 1, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def one(body: str, name: str = "one") -> str:
    return f"  - name: {name}\n" + "".join(f"    {line}\n" for line in body.splitlines())


def test_documents_that_are_as_expected(file: Path) -> None:
    code, said = call(file, GOOD)
    assert code == 0 and "\nok" in f"\n{said}" and "a.yaml:8  Everything moves" in said and "1 passed in" in said
    assert sorted(path.name for path in file.parent.iterdir()) == ["pipeline.yaml", "tests"]  # nothing is left behind


def test_a_step_that_is_left_out_is_noticed(file: Path) -> None:
    lines = GOOD.splitlines(keepends=True)
    steps = [at for at, line in enumerate(lines) if line.strip().startswith(("- {update", "- {insert", "- {delete"))]
    assert len(steps) == 4
    for step in (steps[0], steps[1], steps[3]):
        assert call(file, "".join(lines[:step] + lines[step + 1 :]))[0] == 2, lines[step]


def test_what_differs_is_told_field_by_field(file: Path) -> None:
    given = "given: {customers: [{id: 1, extra: {n: 1}}, {id: 2}]}\nexpect:\n  customer:\n"
    document = "    - {key: 1, document: {id: 1, name: Bob, seen: null, extra: {n: 2, m: 3}, ok: null}}\n"
    code, said = call(file, one(given + document + "    - {key: 2, absent: true}\n    - {key: 3, document: {id: 3}}"))
    assert code == 2
    for part in (
        'name\n        is        "Ann"\n        expected  "Bob"',
        "extra.n\n        is        1",
        "0 passed, 1 f",
    ):
        assert part in said
    assert "extra.m\n        is        nothing\n        expected  3" in said
    assert "expected  no document" in said and "is        no document (the view has 1, 2)" in said
    told = json.loads(call(file, one(given + document), "--json")[1])
    assert (told["passed"], told["failed"]) == (0, 1)
    [test] = told["tests"]
    assert [d["field"] for d in test["differences"]] == ["name", "extra.n", "extra.m"]
    assert test["differences"][0] | {"line": 0} == {
        "view": "customer", "key": "1", "line": 0, "field": "name", "actual": "Ann", "expected": "Bob",
    }  # fmt: skip


def test_a_number_without_quotes_is_explained(file: Path) -> None:
    body = "given: {lines: [{order_id: 1, line: 1, price: 2}]}\nexpect: {line: [{key: [1, 1], document: {price: 2}}]}"
    assert "put it in quotes" in call(file, one(body))[1]


@pytest.mark.parametrize(("key", "code"), [("1541815603606036481", 0), ("1541815603606036480", 2)])
def test_a_whole_number_of_nineteen_digits_is_exact(file: Path, key: str, code: int) -> None:
    head = HEAD.replace("customers: {columns: {id: int,", "customers: {columns: {id: bigint, tags: 'int[]',")
    given = f"given: {{customers: [{{id: 1541815603606036481, tags: [1], extra: {{n: {key}}}}}]}}\n"
    document = "{id: 1541815603606036481, tags: [1], name: Ann, seen: null, extra: {n: 1541815603606036481}, ok: null}"
    body = f"{given}expect: {{customer: [{{key: 1541815603606036481, document: {document}}}]}}"
    (file.parent / "tests" / "a.yaml").write_text(head + one(body))
    done = CliRunner().invoke(cli, ["test", str(file)])
    assert done.exit_code == code, (done.output, done.exception)


def test_one_test_by_its_name(file: Path) -> None:
    bad = one("given: {}\nexpect: {customer: [{key: 1, document: {id: 1}}]}", "broken")
    assert call(file, GOOD + bad)[0] == 2
    assert call(file, GOOD + bad, "-k", "everything")[0] == 0
    code, said = call(file, GOOD + bad, "-k", "nobody")
    assert code == 1 and "Everything moves, broken" in said


EXPECT = "\nexpect: {customer: [{key: 1, absent: true}]}"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("given: {customers: [{id: x}]}" + EXPECT, r"a.yaml:9:\d+: customers.id (int): expected a whole number"),
        ("given: {customers: [{id: 1, nam: x}]}" + EXPECT, "table customers has no column nam"),
        ("given: {customer: [{id: 1}]}" + EXPECT, "there is no table customer among"),
        ("given: {customers: [{id: 1, ok: perhaps}]}" + EXPECT, "expected one of yes, no"),
        ("given: {lines: [{line: 1}]}" + EXPECT, "lines.order_id is NOT NULL and not given"),
        ("given: {}\nexpect: {cards: [{key: 1, absent: true}]}", "the pipeline file has no view cards"),
        ("given: {}\nexpect: {line: [{key: 1, absent: true}]}", "the key is order_id, line"),
        ("given: {}\nexpect: {line: [{key: [1, 1]}]}", "one of `document: …`, `absent: true`"),
        ("given: {}\nthen: [{drop: customers}]" + EXPECT, "a step: there is no key drop"),
        ("given: {}\nthen: [{update: customers, key: 1}]" + EXPECT, "`update` takes `key` and `set`"),
        ("given: {}\nthen: [{delete: customers, key: 1}]" + EXPECT, "customers has no row 1"),
        ("given: {customers: [{id: 1}, {id: 1}]}" + EXPECT, "customers has a row 1 already"),
        ("given: {}", "expects nothing"),
        ("gven: {}" + EXPECT, "there is no key gven"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(file: Path, body: str, why: str) -> None:
    import re

    code, said = call(file, one(body))
    pattern = why if why.startswith("a.yaml") else re.escape(why)
    assert code == 1, said
    assert re.search(pattern.replace("(int)", r"\(int\)"), said), said
    assert re.search(r"tests/a.yaml:\d+:\d+: ", said), said


def test_all_that_is_wrong_is_told_at_once(file: Path) -> None:
    code, said = call(file, one("given: {customers: [{id: x, name: 7}, {no: 1}]}" + EXPECT))
    assert code == 1 and said.count("a.yaml:") == 4


@pytest.mark.parametrize(
    ("kind", "why"),
    [("txt", "there is no type txt"), ("numeric(", "is no type"), ("enum()", "an enum needs its values")],
)
def test_types_that_are_none(file: Path, kind: str, why: str) -> None:
    (file.parent / "tests" / "b.yaml").write_text(
        f'version: 1\ntables: {{t: {{columns: {{id: "{kind}"}}, key: [id]}}}}\ntests: []\n'
    )
    code, said = call(file, GOOD)
    assert code == 1 and why in said and "b.yaml:2:" in said


def test_there_must_be_tests(file: Path) -> None:
    done = CliRunner().invoke(cli, ["test", str(file)])
    assert "there is no test file in" in str(done.exception)


def test_a_saved_catalogue_is_read_beside_the_file(file: Path) -> None:
    from cdc.catalogue import Catalogue, Column, Table
    from operations.testing.shapes import saved

    table = Table("public", "customers", (Column("id", "integer", "int4", nullable=False),), ("id",))
    (file.parent / "tests" / "shapes.json").write_text(saved(Catalogue({"public.customers": table}, "1", 2, "db")))
    head = "version: 1\ncatalogue: shapes.json\ntests:\n"
    body = one("given: {customers: [{id: 5}]}\nexpect: {customer: [{key: 5, document: {id: 5}}]}")
    (file.parent / "tests" / "c.yaml").write_text(head + body)
    done = CliRunner().invoke(cli, ["test", str(file)])
    assert done.exit_code == 0, (done.output, done.exception)
    (file.parent / "tests" / "c.yaml").write_text(head.replace("shapes", "gone") + body)
    done = CliRunner().invoke(cli, ["test", str(file)])
    assert "--save-catalogue" in str(done.exception)


def test_shapes_are_those_that_the_database_tells() -> None:
    from operations.testing.shapes import column_of

    def of(kind: str) -> tuple[Any, ...]:
        made = column_of("c", kind, key=False)
        return made.type_name, made.base_type, made.precision, made.scale, made.array, made.nullable

    assert of("varchar(3)") == ("character varying(3)", "varchar", None, None, False, True)
    assert of("timestamp(3) with time zone not null") == (
        "timestamp(3) with time zone", "timestamptz", None, None, False, False,
    )  # fmt: skip
    assert of("numeric(10, 2)[]") == ("numeric(10,2)[]", "numeric", 10, 2, True, True)
    assert of("char(5)") == ("character(5)", "bpchar", None, None, False, True)
    assert of("double precision") == ("double precision", "float8", None, None, False, True)
    assert of("bigint") == ("bigint", "int8", None, None, False, True)
    assert of("int[]") == ("integer[]", "int4", None, None, True, True)  # `int` would look like a domain's name
    assert of("float[] not null") == ("double precision[]", "float8", None, None, True, False)


BY_NAME = """\
  - name: By a unique key
    given: {customers: [{id: 1}], notes: [{id: 5, of: Ann, text: x}]}
    expect: {note: [{key: 5, document: {id: 5, of: Ann, text: x, customer: {id: 1, name: Ann}}}]}
"""


@pytest.mark.parametrize("unique", ["", ", unique: [[name]]", ", unique: [name]", ", unique: [[nam]]"])
def test_a_view_that_joins_by_a_unique_key(file: Path, monkeypatch: pytest.MonkeyPatch, unique: str) -> None:
    view = "  note: {root: notes, refs: {customer: {table: customers, on: {of: name}, columns: [id, name]}}}\n"
    file.write_text(file.read_text().replace("views:\n", "views:\n" + view))
    shapes = f"columns: {{id: int, name: text not null}}, key: [id]{unique}"
    notes = "  notes: {columns: {id: int, of: text, text: text}, key: [id]}\n"
    tables = f"tables:\n  customers: {{{shapes}}}\n{notes}"
    head = f"version: 1\n{tables}defaults: {{customers: {{name: Ann}}}}\ntests:\n"
    monkeypatch.setattr(f"{__name__}.HEAD", head)
    code, said = call(file, BY_NAME)
    if unique == ", unique: [[name]]":
        assert code == 0, said
    elif not unique:
        assert code == 1 and "has no unique constraint over it" in said
        assert "`unique: [[COLUMN, …]]`" in said and "--save-catalogue" in said
    else:
        assert code == 1 and "a.yaml:3:" in said and "unique" in said, said
