"""Builds the images with ``docker build``, each from a streamed context."""

from __future__ import annotations

import platform
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cdc.errors import StackError
from cdc.saying import Say, to_nobody
from deploy.images.catalog import ROOT, Image, select
from deploy.images.context import write
from deploy.images.docker import docker, program
from deploy.local import artifacts


def build(names: Sequence[str], base: str, progress: Say = to_nobody) -> list[str]:
    """Build images and what they stand on.

    Args:
        names: of ``catalog.IMAGES``; all if empty.
        base: the image at the bottom: ``debian:bookworm-slim``, or one that ``base.ensure`` made.
        progress: called with one line at a time.

    Returns:
        the tags of all that is now there.

    Raises:
        StackError: an unknown name, a unit that can't be fetched, or a build that failed, with Docker's last lines.
    """
    images = select(tuple(names))
    units = artifacts.ensure(sorted({unit for image in images for _, unit in image.units}), progress)
    tags: dict[str, str] = {}
    for image in images:
        began = time.monotonic()
        tags[image.name] = image.tag
        _build(image, base if image.parent is None else tags[image.parent], units)
        progress(f"{image.tag} after {time.monotonic() - began:.0f} s, {size_mib(image.tag):.0f} MiB")
    return list(tags.values())


def _build(image: Image, parent: str, units: dict[str, Path]) -> None:
    command = [program("docker"), "build", "--network", "host", "--tag", image.tag, "--build-arg", f"BASE={parent}"]
    if image.name == "headwater":
        command += ["--build-arg", f"UV_VERSION={uv_version()}"]
    if image.name == "redis":
        command += ["--build-arg", f"MACHINE={platform.machine()}"]
    process = subprocess.Popen([*command, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):  # Docker has given up: its output says why
        write(image, units, process.stdin)
    with suppress(BrokenPipeError):
        process.stdin.close()
    output = process.stdout.read().decode(errors="replace")
    if process.wait() != 0:
        raise StackError(
            f"the image {image.tag} could not be built:\n" + "\n".join(output.strip().splitlines()[-25:]),
            fix="look at the last lines; a build needs the network for apt and pip only",
        )


def uv_version() -> str:
    """The version of uv that the Makefile pins."""
    found = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, "the Makefile pins uv"
    return found[1]


def size_mib(tag: str) -> float:
    """An image's size with all of its layers."""
    return int(docker("image", "inspect", "--format", "{{.Size}}", tag)) / 2**20
