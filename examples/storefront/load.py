"""Fill the storefront: ``python -m examples.storefront.load``. A second run changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from examples.common import PostgresEndpoint
from examples.filling import Row, command, fill

OWNER = "storefront_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
PRODUCTS = 500
KINDS = ("lamp", "chair", "kettle", "scarf", "atlas", "violin", "anvil", "teapot")
WORDS = ("oak", "brass", "blue", "quiet", "folding", "old", "northern", "paper")


def rows(seed: int = 1) -> Iterator[tuple[str, list[Row]]]:
    """The table and its rows."""
    rng = Random(seed)
    yield (
        "products",
        [
            (n, f"{rng.choice(WORDS)} {rng.choice(KINDS)}", f"seller {n % 20}", rng.randrange(100, 20_000) / 100)
            for n in range(1, PRODUCTS + 1)
        ],
    )


def load(endpoint: PostgresEndpoint, database: str = "storefront", owner: str = OWNER) -> str:
    """See ``examples.filling.fill``; returns the owner's connection string."""
    return fill(endpoint, database, owner, SCHEMA, rows)


main = command("storefront", load, "the storefront", f"{PRODUCTS} products")

if __name__ == "__main__":
    main()
