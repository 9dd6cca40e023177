"""``headwater test``: do the views make the documents that are expected of them? No server is asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from console.cli.shared.options import json_option, pipeline_argument, print_json
from console.cli.shared.patience import patient


@click.command(
    epilog="""\b
Examples:
  headwater test pipeline.yaml                                 (tests/*.yaml beside it)
  headwater test pipeline.yaml tests/orders.yaml -k discount
  headwater test pipeline.yaml --save-catalogue tests/catalogue.json   (asks the database, once)
\b
A test file:
  version: 1
  tables:                       # or `catalogue: catalogue.json`, saved from the database
    customers: {columns: {id: int, name: text}, key: [id]}
    orders: {columns: {id: int, customer_id: int, total: "numeric(10,2)"}, key: [id]}
  tests:
    - name: an order shows who made it
      given:
        customers: [{id: 1, name: Ann}]
        orders: [{id: 7, customer_id: 1, total: 12.5}]
      then:
        - {update: customers, key: 1, set: {name: Anna}}
      expect:
        order_card:
          - {key: 7, document: {id: 7, customer: {name: Anna}, total: "12.50"}}
"""
)
@pipeline_argument
@click.argument("tests", nargs=-1, type=click.Path(path_type=Path), metavar="[TESTFILE]...")
@click.option("-k", "match", default="", metavar="NAME", help="Only tests whose name has this in it.")
@click.option(
    "--save-catalogue",
    "catalogue",
    type=click.Path(path_type=Path),
    default=None,
    metavar="PATH",
    help="Write the tables' shapes from the database into a file for tests, and run none.",
)
@json_option
@patient
def command(file: Path, tests: tuple[Path, ...], match: str, catalogue: Path | None, as_json: bool) -> None:
    """Test the views of FILE like code: rows and changes in, documents out, compared exactly.

    A test file gives rows by table, changes them if it wants to, and says which documents a view must have then. They
    are made in this process by the code that `run` makes them with, in seconds, without Postgres, Kafka or a sink;
    Spark is started only for views with Spark SQL. docs/testing.md has the whole format.

    Exit code 0: all documents are as expected; 2: some are not; 1: an error, such as a test file that is wrong.
    """
    from operations.testing.report import report_of, save_catalogue

    if catalogue is not None:
        count = save_catalogue(file, catalogue)
        click.echo(f"the shapes of {count} tables are in {catalogue}")
        return
    report = report_of(file, tests, match, lambda line: click.echo(line, err=True))
    if as_json:
        print_json(report)
    else:
        _print(report)
    sys.exit(2 if report["failed"] else 0)


def _print(report: Mapping[str, Any]) -> None:
    for test in report["tests"]:
        click.echo(f"{'ok    ' if test['passed'] else 'FAILED'} {test['file']}:{test['line']}  {test['name']}")
        before = None
        for one in test["differences"]:
            if (where := (one["view"], one["key"], one["line"])) != before:
                click.echo(f"    {one['view']} {one['key']}  ({test['file']}:{one['line']})")
            before = where
            click.echo(f"      {one['field'] or 'document'}")
            click.echo(f"        is        {_value(one['actual'])}")
            click.echo(f"        expected  {_value(one['expected'])}{_hint(one)}")
        for letter in () if test["passed"] else test["dead_letters"]:
            click.echo(f"    dead letter: {letter}")
    failed = f", {report['failed']} failed" if report["failed"] else ""
    click.echo(f"{report['passed']} passed{failed} in {report['seconds']:.1f} s")


def _value(value: Any) -> str:
    """A value as JSON; words of ours stand as they are."""
    words = isinstance(value, str) and value.startswith(("no document", "a document", "nothing"))
    return value if words else json.dumps(value, ensure_ascii=False)


def _hint(one: Mapping[str, Any]) -> str:
    """A number where a text stands is most often an exact number without its quotes."""
    text, number = one["actual"], one["expected"]
    if isinstance(text, str) and type(number) in (int, float):
        return "   (exact numbers are text in documents: put it in quotes)"
    return ""
