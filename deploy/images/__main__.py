"""``python -m deploy.images``: build the container images (``make images``)."""

from __future__ import annotations

import sys

import click

from cdc.errors import HeadwaterError
from deploy.images import base as local_base
from deploy.images.build import build
from deploy.images.catalog import IMAGES
from deploy.images.engine import engine
from deploy.local.site import Site


@click.command()
@click.argument("names", nargs=-1, metavar=f"[{'|'.join(IMAGES)}]…")
@click.option("--base", metavar="IMAGE", help="What they stand on; default: a Debian made here with debootstrap.")
def main(names: tuple[str, ...], base: str | None) -> None:
    """Build container images (all if none is named) from the pinned files of the local stack.

    Where no Docker engine answers, root gets one installed and started for as long as this takes.

    \b
    Examples:
      python -m deploy.images
      python -m deploy.images headwater --base debian:bookworm-slim
    """

    def say(line: str) -> None:
        click.echo(line, err=True)

    try:
        with engine(Site.find().home / "logs" / "dockerd.log", say):
            build(names, base or local_base.ensure(say), say)
    except HeadwaterError as error:
        click.echo(f"error [{error.code}]: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
