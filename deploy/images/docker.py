"""The Docker client, as a command."""

from __future__ import annotations

import shutil
import subprocess

from cdc.errors import StackError


def program(name: str) -> str:
    """A program's full path.

    Raises:
        StackError: it is not on the PATH.
    """
    found = shutil.which(name)
    if found is None:
        raise StackError(f"{name} is not on the PATH", fix=f"Debian: apt-get install {PACKAGES.get(name, name)}")
    return found


PACKAGES = {"docker": "docker.io", "dockerd": "docker.io"}


def docker(*arguments: str, check: bool = True) -> str:
    """Run ``docker`` and return what it prints.

    Raises:
        StackError: it failed, with its words (not with ``check=False``).
    """
    command = [program("docker"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if check and done.returncode != 0:
        raise StackError(f"`docker {' '.join(arguments)}` failed: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def has_image(tag: str) -> bool:
    """Whether the image is here."""
    return bool(docker("image", "ls", "--quiet", tag))
