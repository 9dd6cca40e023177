"""``headwater explain``: why does a document look as it does?"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson
from rich.text import Text

from console.cli.shared import tables
from console.cli.shared.cut import cut
from console.cli.shared.options import json_option, master_option, pipeline_argument, print_json
from console.cli.shared.patience import patient

# More than this of anything only hides the rest; --json has all.
MAX_ROWS = 40
MAX_LINES = 60
MAX_DIFFERENCES = 20
MAX_VALUE = 200


@click.command(
    epilog="""\b
Examples:
  headwater explain pipeline.yaml cache 42 --view flight_card
  headwater explain pipeline.yaml cache '2013|UA' --view totals     (a key of two columns)
  headwater explain pipeline.yaml search 42 --expected
  headwater explain pipeline.yaml search 42 --json | jq .rows
"""
)
@pipeline_argument
@click.argument("sink", metavar="SINK")
@click.argument("key", metavar="KEY")
@click.option("--view", "view", metavar="NAME", help="Which view, when the sink has several.")
@click.option("--expected", is_flag=True, help="Also build the document from Postgres, and show what differs.")
@master_option
@json_option
@patient
def command(
    file: Path, sink: str, key: str, view: str | None, expected: bool, master: str | None, as_json: bool
) -> None:
    """Show why a document looks as it does.

    What SINK holds under KEY, with its version and generation; of a view with joins every row that makes it, each with
    its position and the topic, partition and offset of the change that wrote it, aggregates, the document's version
    counter, and whether the row store would make the same document now. Reads only; Spark is started only if --expected
    asks for a view with Spark SQL.

    KEY is the document's id: the primary key, several columns joined with |; one that begins with a minus goes after
    --. Exit code 2 when --expected finds a difference. A key that is nowhere is no error.
    """
    from cdc.pipeline import load
    from operations.explain.report import explain_report
    from operations.run.machines import alone

    report = explain_report(
        alone(load(file), master), sink, key, view, expected=expected, progress=lambda line: click.echo(line, err=True)
    )
    if as_json:
        print_json(report)
    else:
        show(report)
    sys.exit(2 if report["expected"] is not None and not report["expected"]["equal"] else 0)


def show(report: Mapping[str, Any]) -> None:
    """Print a report."""
    place = f"sink {report['sink']} ({report['type']}), generation {report['generation']}, flow {report['state']}"
    click.echo(f"{report['view']} {report['key']} · {place}")
    if not report["found"]:
        click.echo(report["not_a_key"] or f"nothing has this key: not {' nor '.join(_asked(report))}")
        if report["near"]:
            click.echo(f"did you mean {' or '.join(report['near'])}?")
    else:
        _show_held(report)
        _show_rows(report)
        _show_aggregates(report)
    if report["row_store"] is not None:
        _show_row_store(report)
    if report["expected"] is not None:
        _show_expected(report["expected"])


def _asked(report: Mapping[str, Any]) -> list[str]:
    asked = {"the sink": True, "the row store": report["row_store"], "Postgres": report["expected"]}
    return [name for name, part in asked.items() if part is not None]


def _show_held(report: Mapping[str, Any]) -> None:
    held = report["held"]
    if held is None:
        click.echo("\nthe sink holds no such document")
        return
    counted = "counted for this document, no position in the log" if held["lsn"] is None else _at(held)
    click.echo(f"\nheld · version {held['version']} ({counted})")
    _document(held["document"])
    if report["computed"]:
        shown = ", ".join(name for name in report["computed"] if name in held["document"])
        click.echo(f"computed by Spark SQL: {shown or 'nothing'}")


def _show_rows(report: Mapping[str, Any]) -> None:
    rows = report["rows"]
    if not rows:
        return
    table = tables.plain_table("row", "table", "key", "position", "record", "")
    for row in rows[:MAX_ROWS]:
        state = "" if row["state"] == "shown" else _STATES[row["state"]]
        cells = (row["path"], row["table"], row["key"], _at(row), _record(row), state)
        table.add_row(*(Text(cell) for cell in cells))
    click.echo()
    tables.show(table)
    if len(rows) > MAX_ROWS:
        click.echo(f"… and {len(rows) - MAX_ROWS:,} more rows (--json shows all)")
    for path, count in report["left_out"].items():
        click.echo(f"{path}: the view's limit leaves out {count:,} more")
    if report["row_store"] is None:
        click.echo("a view of one table keeps no offsets: the version is the position of the row's newest change")


_STATES = {
    "deleted": "deleted: only its mark is left",
    "missing": "never came",
    "elsewhere": "points at another row now",
    "older": "has the same unique value; the one above is newer",
    "second": "a second one, where `one: true` says that there is none",
}


def _show_aggregates(report: Mapping[str, Any]) -> None:
    for total in report["aggregates"][:MAX_ROWS]:
        value = _value(total["value"]) if total["known"] else "a value whose type Spark SQL knows"
        count = "" if total["values"] is None else f" · {total['values']:,} values"
        click.echo(f"{total['path']} = {value} · over {total['table']}{count}")
    if len(report["aggregates"]) > MAX_ROWS:
        click.echo(f"… and {len(report['aggregates']) - MAX_ROWS:,} more aggregates (--json shows all)")


def _show_row_store(report: Mapping[str, Any]) -> None:
    part = report["row_store"]
    none = "no document was ever made" if part["document"] is None else "nothing has changed since its fill"
    version = none if part["version"] is None else f"the newest version is {part['version']}"
    click.echo(f"\nrow store · {version}")
    if part["document"] is None:
        click.echo("it would make no document now: the row is not there")
    elif report["held"] is None:
        unless = ", unless the view's condition leaves it out" if part["equal"] is None else ""
        click.echo(f"it would make this document now{unless}:")
        _document(part["document"])
    elif part["equal"]:
        click.echo("it would make the same document now")
    else:
        click.echo("what it would make now differs:")
    _differences(part["differences"], "row_store", "row store")
    if part["waiting"]:
        click.echo(f"{part['waiting']:,} documents of this view, perhaps this one, wait to be made again")


def _show_expected(part: Mapping[str, Any]) -> None:
    click.echo("\nPostgres · " + ("as the sink has it" if part["equal"] else "differs from what the sink holds"))
    if part["document"] is None:
        click.echo(f"there must be no document: {part['why']}")
    elif not part["equal"] and not part["differences"]:
        _document(part["document"])
    _differences(part["differences"], "expected", "Postgres")


def _differences(found: list[dict[str, Any]], name: str, title: str) -> None:
    for one in found[:MAX_DIFFERENCES]:
        click.echo(f"  {one['field']}: the sink has {_side(one, 'sink')}, {title} has {_side(one, name)}")
    if len(found) > MAX_DIFFERENCES:
        click.echo(f"  … and {len(found) - MAX_DIFFERENCES:,} more (--json shows all)")


def _side(one: Mapping[str, Any], name: str) -> str:
    return _value(one[name]) if name in one else "nothing"


def _value(value: Any) -> str:
    return cut(orjson.dumps(value).decode(), MAX_VALUE)


def _document(document: Mapping[str, Any]) -> None:
    lines = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode().splitlines()
    click.echo("\n".join(lines[:MAX_LINES]))
    if len(lines) > MAX_LINES:
        click.echo(f"… and {len(lines) - MAX_LINES:,} more lines (--json shows all)")


def _at(item: Mapping[str, Any]) -> str:
    if item["lsn"] is None:
        return "no position"
    return f"LSN {item['lsn']}" + (f", epoch {item['epoch']}" if item["epoch"] else "")


def _record(row: Mapping[str, Any]) -> str:
    if row["offset"] is None:
        return row["topic"] if row["state"] != "missing" else ""
    return f"{row['topic']}/{row['partition']}/{row['offset']}"
