"""``headwater pack``: the Python environment that a Spark cluster's executors are sent."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    epilog="""\b
Examples:
  headwater pack /srv/headwater/python.tar.gz
"""
)
@click.argument("archive", type=click.Path(path_type=Path), metavar="ARCHIVE")
def command(archive: Path) -> None:
    """Pack what executors of a Spark cluster need of this installation into ARCHIVE (a .tar.gz).

    Name it as engine.python_archive in the pipeline file, and every executor is sent it. It holds packages and no
    interpreter: each worker needs a Python of the same minor version and the same kind of machine. Pack again after an
    upgrade. Not needed where the workers have this installation at the same path, in an image say.
    """
    from spark.machine.packing import pack

    pack(archive, click.echo)
