"""pgsync by itself, without Headwater beside it: ``python -m benchmarks.peers``."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict

import click

from benchmarks.peers.copies import drop
from benchmarks.peers.daemon import OPTIONS, TUNED
from benchmarks.peers.documents import DOCUMENTS
from benchmarks.peers.measuring import Settings
from benchmarks.peers.pgsync import DEFAULTS, measure, measure_build
from cdc.errors import HeadwaterError
from deploy.local.stack import LocalStack


@click.command()
@click.option("--flights", default=DEFAULTS.flights, show_default=True, help="Flights in the copy of the database.")
@click.option("--updates", default=DEFAULTS.updates, show_default=True, help="Flights that are changed for updates.")
@click.option("--samples", default=DEFAULTS.samples, show_default=True, help="Single commits on an idle pgsync.")
@click.option("--tuned", is_flag=True, help="With the setting that pgsync's maintainer advises for speed.")
@click.option("--build-only", type=click.Choice(sorted(DOCUMENTS)), help="Only fill an index with these documents.")
@click.option("--drop", "left_over", metavar="DATABASE", help="Only drop a database that a killed run left behind.")
def main(flights: int, updates: int, samples: int, tuned: bool, build_only: str | None, left_over: str | None) -> None:
    """Measure pgsync with the local stack's Postgres and Redis (headwater up --only postgres,redis-store)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that everything is stopped
    options = TUNED if tuned else OPTIONS
    try:
        settings = Settings(flights=flights, updates=updates, samples=samples)
        if left_over:
            drop(LocalStack().endpoints, left_over)
        elif build_only:
            filled, wrong = measure_build(settings, DOCUMENTS[build_only], options, click.echo)
            click.echo(json.dumps(asdict(filled) | {"docs_s": filled.docs_s, "wrong_documents": wrong}, indent=1))
        else:
            click.echo(json.dumps(asdict(measure(settings, options, click.echo)), indent=1))
    except HeadwaterError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
