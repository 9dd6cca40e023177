"""``headwater verify``: are the sinks right? Row by row, against Postgres itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.compare import Comparison, compare
from console.options import json_option, pipeline_argument, print_json, sink_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.catalogue import Catalogue
    from cdc.pipeline import Pipeline
    from cdc.view import View
    from console.truth import Form

Progress = Callable[[str], None]

# Between two looks at a difference that may only be a change still on its way.
PAUSE_SECONDS = 1.0


@click.command(
    epilog="""\b
Examples:
  headwater verify pipeline.yaml
  headwater verify pipeline.yaml --sink cache --json
  headwater verify pipeline.yaml --wait 60      (let sinks that are behind catch up first)
"""
)
@pipeline_argument
@sink_option
@json_option
@click.option("--wait", default=10.0, metavar="SECONDS", show_default=True, help="Look again at differences this long.")
def command(file: Path, only: tuple[str, ...], as_json: bool, wait: float) -> None:
    """Compare every row that a sink holds with what Postgres says it should hold.

    The truth is read from the tables by plain SQL, not from the log. A difference counts only when it is still there
    after --wait seconds, because a sink may be a moment behind. Exit code 2 when anything differs.
    """
    from cdc.pipeline import load

    report = verify_report(load(file), only, wait, progress=lambda line: click.echo(line, err=True))
    if as_json:
        print_json(report)
    else:
        _print(report)
    sys.exit(0 if report["equal"] else 2)


def verify_report(
    pipeline: Pipeline, only: Sequence[str] = (), wait: float = 0.0, progress: Progress = lambda line: None
) -> dict[str, Any]:
    """Compare the sinks; the shape of ``--json``.

    Args:
        pipeline: the loaded file.
        only: sink names; none for all.
        wait: seconds to look again at what differs.
        progress: told a line for each view.
    """
    from console.catalogue import source_catalogue

    catalogue = source_catalogue(pipeline)
    deadline = time.monotonic() + wait
    verifier = Verifier(pipeline, catalogue, progress)
    try:
        sinks = verifier.sinks(only, deadline)
    finally:
        verifier.close()
    return {
        "pipeline": pipeline.name,
        "at": time.time(),
        "equal": all(view["differences"] == 0 for sink in sinks for view in sink["views"]),
        "source_rows": verifier.source_rows,
        "sinks": sinks,
    }


class Verifier:
    """Holds what several comparisons share: the resolved views and, if a view needs it, one Spark session.

    Args:
        pipeline: the loaded file.
        catalogue: the source's tables.
        progress: told a line for each view.
    """

    def __init__(self, pipeline: Pipeline, catalogue: Catalogue, progress: Progress) -> None:
        self.pipeline, self.catalogue, self.progress = pipeline, catalogue, progress
        self.source_rows: dict[str, int] = {}
        self._spark: SparkSession | None = None

    def close(self) -> None:
        """End Spark if it was started."""
        if self._spark is not None:
            self._spark.stop()

    def sinks(self, only: Sequence[str], deadline: float) -> list[dict[str, Any]]:
        """Compare sinks, looking again at views that differ until ``deadline`` (monotonic seconds).

        View by view, because what a view must hold is the same for all sinks that hold it.
        """
        from cdc.resolve import resolve_views
        from console.engine import chosen_sinks

        names = chosen_sinks(self.pipeline, only)
        views = {name: resolve_views(self.pipeline, self.catalogue, name) for name in names}
        results: dict[tuple[str, str], Comparison] = {}
        for view in {view.name: view for name in names for view in views[name]}.values():
            for same, holders in _holders(view.name, views):
                for name, result in self._settled(same, holders, deadline).items():
                    results[name, view.name] = result
        return [
            {
                "sink": name,
                "type": self.pipeline.sinks[name].type,
                "views": [
                    {**asdict(results[name, view.name]), "equal": results[name, view.name].equal}
                    for view in views[name]
                ],
            }
            for name in names
        ]

    def _settled(self, view: View, holders: Sequence[str], deadline: float) -> dict[str, Comparison]:
        """How a view compares in each sink; those that differ are compared again with Postgres as it is then."""
        self.progress(f"comparing {view.name} · {', '.join(holders)}")
        results: dict[str, Comparison] = {}
        left = list(holders)
        while left:
            results |= self._compare(view, left)
            left = [name for name in left if not results[name].equal]
            if not left or time.monotonic() > deadline:
                break
            time.sleep(PAUSE_SECONDS)
        return results

    def _compare(self, view: View, holders: Sequence[str]) -> dict[str, Comparison]:
        from console.truth import expected_digests, needs_spark
        from console.typed import with_singles

        forms = {name: self._form(name) for name in holders}
        spark = self._session() if needs_spark(view) else None
        expected = expected_digests(view, self.pipeline.source, spark, set(forms.values()))
        results = {}
        for name in holders:
            if not view.where:
                self.source_rows[view.table.qualified] = len(expected[forms[name]])
            held = ((key, with_singles(view, document)) for key, document in self._held(name, view))
            results[name] = compare(view.name, expected[forms[name]], held)
        return results

    def _form(self, name: str) -> Form:
        from cdc.pipeline import IcebergSink

        return "columns" if isinstance(self.pipeline.sinks[name], IcebergSink) else "document"

    def _held(self, name: str, view: View) -> Iterator[tuple[str, Any]]:
        from cdc.pipeline import IcebergSink
        from console.engine import catalog_name
        from console.typed import comparable_rows
        from sinks import iceberg

        sink = self.pipeline.sinks[name]
        if isinstance(sink, IcebergSink):
            yield from comparable_rows(view, iceberg.scan(sink, catalog_name(name), view.name))
        else:
            yield from self._documents(name, view)

    def _documents(self, name: str, view: View) -> Iterator[tuple[str, bytes]]:
        from sinks.configure import sink_config
        from sinks.factory import open_sink

        opened = open_sink(sink_config(name, self.pipeline.sinks[name], [view], {}))
        try:
            for held in opened.scan(view.name):
                yield held.key, held.document
        finally:
            opened.close()

    def _session(self) -> SparkSession:
        from console.engine import open_spark

        if self._spark is None:
            self._spark = open_spark(self.pipeline, [])
        return self._spark


def _holders(view: str, views: Mapping[str, Sequence[View]]) -> list[tuple[View, list[str]]]:
    """Each different view of that name (`tables: all` may call one as the file does), with the sinks that hold it."""
    found: list[tuple[View, list[str]]] = []
    for name, of in views.items():
        for one in (one for one in of if one.name == view):
            known = next((holders for same, holders in found if same == one), None)
            if known is None:
                found.append((one, [name]))
            else:
                known.append(name)
    return found


def _print(report: Mapping[str, Any]) -> None:
    for sink in report["sinks"]:
        for view in sink["views"]:
            verdict = "equal" if view["equal"] else f"{view['differences']} differ"
            click.echo(f"{sink['sink']:<12} {view['view']:<16} {view['expected']:>10,} rows  {verdict}")
            for kind in ("missing", "extra", "changed"):
                if view[kind]:
                    click.echo(f"    {kind}: {', '.join(view[kind])}")
    click.echo("all sinks equal Postgres" if report["equal"] else "sinks differ from Postgres")
