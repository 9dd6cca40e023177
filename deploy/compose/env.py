"""``python -m deploy.compose.env > .env``: new passwords for docker-compose.yml; ``--images``: our own images too."""

from __future__ import annotations

import secrets

import click

from deploy.images.catalog import variables

PASSWORDS = ("HEADWATER_POSTGRES_PASSWORD", "HEADWATER_SOURCE_PASSWORD", "HEADWATER_SETUP_PASSWORD")


def fresh(*, images: bool) -> dict[str, str]:
    """New passwords; with ``images`` also the names of the images that ``make images`` builds."""
    made = {name: secrets.token_urlsafe(24) for name in PASSWORDS}
    return {"COMPOSE_PROJECT_NAME": "headwater", **made, **(variables() if images else {})}


@click.command()
@click.option("--images", is_flag=True, help="Every server's image is one that `make images` has built here.")
def main(images: bool) -> None:
    """Print an env file for docker-compose.yml. Whoever reads it can log in: keep it to yourself (chmod 600)."""
    for name, value in fresh(images=images).items():
        click.echo(f"{name}={value}")


if __name__ == "__main__":
    main()
