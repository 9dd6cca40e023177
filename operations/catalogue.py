"""The source's catalogue for verbs that run: read from Postgres, remembered for when Postgres is away."""

from __future__ import annotations

import click

from cdc.catalogue import Catalogue
from cdc.errors import SourceError
from cdc.pipeline import Pipeline
from connectors.catalogue import read_catalogue
from connectors.postgres import connect
from operations.state_folder import state_dir
from spark.files import write_atomic


def source_catalogue(pipeline: Pipeline) -> Catalogue:
    """Read the captured tables' definitions; fall back on the last known ones when Postgres does not answer.

    The sinks live from the log: they must start, and catch up on what the log holds, while the database is down. A
    table that is not there is left out, with a warning: only the sinks that need it have a reason to stop.

    Raises:
        SourceError: Postgres does not answer and this pipeline has never run here (transient by nature); or none of
            the tables is there (terminal).
    """
    remembered = state_dir(pipeline) / pipeline.name / "catalogue.json"
    absent: list[SourceError] = []
    try:
        with connect(pipeline.source) as connection:
            catalogue = read_catalogue(connection, pipeline.source.tables, absent=absent)
    except SourceError as error:
        if not error.transient or not remembered.exists():
            raise
        click.echo(f"warning: {error.what}; going on with the table definitions of the last start", err=True)
        return Catalogue.from_json(remembered.read_text())
    if absent and not catalogue.tables:
        raise absent[0]
    for missing in absent:
        click.echo(f"warning: {missing.what}; what needs it is left out", err=True)
    write_atomic(remembered, catalogue.to_json())
    return catalogue
