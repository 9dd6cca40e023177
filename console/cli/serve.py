"""``headwater serve``: the page and the HTTP API."""

from __future__ import annotations

from pathlib import Path

import click

PORT = 8470


@click.command(
    epilog="""\b
Examples:
  headwater serve pipeline.yaml
  headwater serve shop.yaml wiki.yaml --port 9000
  HEADWATER_READ_TOKEN=… headwater serve pipeline.yaml --host 0.0.0.0 --name hw.example.org
"""
)
@click.argument("files", type=click.Path(path_type=Path), metavar="FILE…", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="N",
    help="0 for any that is free.",
)
@click.option("--name", "names", multiple=True, metavar="NAME", help="Under which else it is called (may be repeated).")
def command(files: tuple[Path, ...], host: str, port: int, names: tuple[str, ...]) -> None:
    """Answer over HTTP for one or more pipelines: a page for who operates them, and an API.

    The page shows the flow from the database to the sinks as it is now, the trace of one row, and promotes, pauses and
    rebuilds by clicks (docs/page.md). `POST /v1/wait` waits until a write is visible in the sinks (docs/api.md);
    GET /openapi.json describes all of the API. Reads the state folder of the `headwater run` that is at work, so it
    belongs on the same machine; it needs the passwords that the files name.

    It listens to this machine alone. Another --host needs a token, taken from the environment: who bears
    HEADWATER_READ_TOKEN may ask, and who bears HEADWATER_OPERATE_TOKEN may also do; sent as `Authorization: Bearer …`,
    or typed into the page's form. Who bears HEADWATER_STREAM_TOKEN may subscribe to changes and nothing else, and sees
    no page.
    """
    from console.http.server import serve
    from console.log_lines import log_lines, say

    with log_lines():
        serve(files, host, port, names, say)
