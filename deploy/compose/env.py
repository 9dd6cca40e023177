"""``python -m deploy.compose.env``: the .env of docker-compose.yml, made or brought up to date."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

import click

from deploy.images.catalog import ROOT, variables

PASSWORDS = ("HEADWATER_POSTGRES_PASSWORD", "HEADWATER_SOURCE_PASSWORD", "HEADWATER_SETUP_PASSWORD")
PROJECT = "COMPOSE_PROJECT_NAME"
# A line that sets something: what is before its value, its name, its value.
_LINE = re.compile(r"(\s*(?:export\s+)?(\w+)\s*=)(.*)")
# Our own images, whatever their version; another registry's are somebody's choice.
_BUILT_HERE = "headwater/"


def fresh(*, images: bool) -> dict[str, str]:
    """New passwords; with ``images`` also the names of the images that ``make images`` builds."""
    made = {name: secrets.token_urlsafe(24) for name in PASSWORDS}
    return {PROJECT: "headwater", **made, **(variables() if images else {})}


def renewed(text: str, new: Mapping[str, str]) -> str:
    """An env file with what it lacks, and with the images of this version; all else stays as it is.

    Args:
        text: the file as it is. Servers keep the passwords of their first start, so a second one would lock us out.
        new: what ``fresh`` makes.

    Returns:
        the file as it is to be. A line that names an image built here is renewed also if ``new`` names none: it would
        pin an older version.
    """
    lines, has = [], set()
    current = variables()
    for given in text.removesuffix("\n").split("\n") if text else ():
        line, found = given, _LINE.fullmatch(given)
        name, value = (found[2], found[3].strip().strip("'\"")) if found else ("", "")
        if found and name in current and (name in new or value.startswith(_BUILT_HERE)):
            value = current[name]
            line = found[1] + value
        elif found and not value and name in PASSWORDS:  # a copy of example.env
            value = new[name]
            line = found[1] + value
        lines.append(line)
        has |= {name} if value else set()
    # Without a name the project is called after its folder; with one it would be another, with empty volumes.
    keep = {PROJECT} if has & set(PASSWORDS) else set()
    lines += [f"{name}={value}" for name, value in new.items() if name not in has | keep]
    return "\n".join([*lines, ""])


def write(path: Path, new: Mapping[str, str]) -> list[str]:
    """Make or renew an env file, in one step, so that only its owner may read it.

    Args:
        path: the file; if it is a link, what it leads to.
        new: what ``fresh`` makes.

    Returns:
        names whose lines are new or others than before.

    Raises:
        OSError: it can't be read or written; it is as it was.
    """
    path = path.resolve()
    if not path.parent.is_dir():  # or what is written first would be named, of which nobody knows
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    before = path.read_text("utf-8", errors="surrogateescape") if path.exists() else ""
    after = renewed(before, new)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as out:
            out.write(after)
            out.flush()
            os.fsync(out.fileno())
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    old = set(before.splitlines())
    return [found[2] for line in after.splitlines() if line not in old and (found := _LINE.fullmatch(line))]


@click.command()
@click.option("--images", is_flag=True, help="Every server's image is one that `make images` has built here.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default=str(ROOT / ".env"),
    show_default=".env beside docker-compose.yml",
    help="The file; - prints a new one instead.",
)
def main(images: bool, output: str) -> None:
    """Make the env file of docker-compose.yml, or bring it up to date after an upgrade.

    What is in it stays: passwords, which the servers know from their first start, and lines of your own. Names of
    images that were built here become those of this version, and what is missing is added.
    """
    new = fresh(images=images)
    if output == "-":
        click.echo(renewed("", new), nl=False)
        return
    try:
        changed = write(Path(output), new)
    except OSError as error:
        raise click.ClickException(f"{error.filename or output}: {error.strerror or error}") from error
    click.echo(f"{output}: {', '.join(changed) if changed else 'nothing to change'}")


if __name__ == "__main__":
    main()
