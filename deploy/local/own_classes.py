"""Our own classes for Spark (deploy/spark), built beside its class archive."""

from __future__ import annotations

from pathlib import Path

from cdc.saying import Say
from deploy.local import artifacts
from deploy.local.java import compiler
from deploy.local.site import Site
from deploy.spark import build


def prepare(site: Site, say: Say) -> Path | None:
    """Build the jar if it is not there, or of another source. That it can't be made is told, and no error.

    Args:
        site: the stack's.
        say: is told why it can't.

    Returns:
        the jar, if it is there.
    """
    target = site.spark_archive.with_name(build.NAME)
    jars = artifacts.folder("spark")
    if build.is_built(jars, target):
        return target
    javac = compiler(site.jdk)
    try:
        build.build(str(javac), jars, target)
    except (OSError, RuntimeError) as error:
        say(f"Spark works in its own, slower way: {javac} made no jar of our classes ({error})")
        return None
    return target
