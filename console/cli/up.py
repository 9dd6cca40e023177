"""``headwater up``: start the local servers."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import click

from cdc.errors import ConfigError
from cdc.java import for_spark
from cdc.saying import Say
from console.cli.shared.local_options import chosen, only_option
from spark.machine import startup

# No server, but what Spark needs for one of somebody else's.
S3 = "s3"


@click.command()
@only_option
@click.option(
    "--with",
    "more",
    metavar="NAME[,NAME…]",
    help="these as well: registry (schemas, for Avro), opensearch, elasticsearch-9, s3 (jars for a warehouse in a "
    "bucket, 66 MiB)",
)
def command(only: str | None, more: str | None) -> None:
    """Start the local servers: fetch what is missing, start what isn't running, heal what is half dead.

    Running it again changes nothing. Servers listen on 127.0.0.1 only; they go on after this command ends.

    \b
    HEADWATER_HOME       data, logs, pid files     (default .headwater here)
    HEADWATER_CACHE      fetched programs          (default ~/.cache/headwater)
    HEADWATER_PORT_BASE  first port                (default 15000)

    \b
    Examples:
      headwater up
      headwater up --only postgres,kafka
      headwater up --with registry
      headwater up --with opensearch
      headwater up --with s3
      eval "$(headwater ps --env)"
    """
    from deploy.local import own_classes
    from deploy.local.artifacts import ensure, spark_jars
    from deploy.local.stack import LocalStack

    stack = LocalStack()
    began = time.monotonic()
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            click.echo(f"{time.monotonic() - began:6.1f} s  {line}")

    wanted = chosen(more) or []
    seconds = stack.up(chosen(only), say, [name for name in wanted if name != S3])
    if S3 in wanted:
        ensure(["spark-s3"], say)
    jars = spark_jars(say)  # `headwater run` needs them whichever servers run here
    missing = prepare_spark(jars[0].parent, stack.site.spark_archive, say)
    own_classes.prepare(stack.site, say)  # without them no view keeps a state
    total = time.monotonic() - began
    started = sum(1 for value in seconds.values() if value)
    click.echo(f"up: {len(seconds)} servers ({started} started) in {total:.1f} s, data in {stack.site.home}")
    click.echo('addresses for pipeline files: eval "$(headwater ps --env)"')
    if missing is not None:  # last, where it is read
        click.echo(f"warning: {missing}", err=True)


def prepare_spark(jars: Path, archive: Path, say: Say) -> ConfigError | None:
    """Make Spark's class archive, if there is a Java for Spark.

    Args:
        jars: folder with the pinned jars.
        archive: where it goes.
        say: is told what takes so long.

    Returns:
        that there is none. The servers run without it, and so it is no failure of ``up``.
    """
    try:
        for_spark()
    except ConfigError as missing:
        return missing
    startup.prepare(jars, archive, say)
    return None
