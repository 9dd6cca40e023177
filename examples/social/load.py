"""Fill the social network: ``python -m examples.social.load``. The same rows each time; run again, nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

from examples.common import PostgresEndpoint
from examples.filling import Row, command, fill

OWNER = "social_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
USERS, TWEETS = 25, 120
CELEBRITY = 1  # everybody follows user 1
NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Eun-ji", "Fatou", "Göran", "Hana", "Iñaki", "Jun")
WORDS = ("log", "stream", "table", "order", "late", "again", "kept", "river", "source", "mouth", "ça va", "🚀")
EMOJIS = ("❤", "👍", "🎉")
START = datetime(2024, 5, 1, 8, tzinfo=UTC)


def rows(seed: int = 1) -> Iterator[tuple[str, list[Row]]]:
    """(table, its rows), parents first."""
    rng = Random(seed)
    users = range(1, USERS + 1)
    yield "users", [(n, f"{NAMES[n % 10].lower()}{n}", f"{NAMES[n % 10]} {n}") for n in users]
    follows: list[Row] = []
    for user in users:
        chosen = {CELEBRITY, *rng.sample(users, 5)} - {user}
        follows += [(user, other, date(2024, 1, 1) + timedelta(days=rng.randrange(90))) for other in sorted(chosen)]
    yield "follows", follows
    tweets: list[Row] = []
    for tweet in range(1, TWEETS + 1):
        reply = rng.randrange(1, tweet) if tweet > 1 and rng.random() < 0.3 else None
        posted = START + timedelta(minutes=rng.randrange(600), milliseconds=rng.randrange(1000))
        tweets.append((tweet, rng.choice((CELEBRITY, *users)), posted, " ".join(rng.choices(WORDS, k=4)), reply))
    yield "tweets", tweets
    likes = {(rng.randint(1, TWEETS), rng.choice(users), rng.choice(EMOJIS)) for _ in range(400)}
    yield "likes", sorted(likes)


def load(endpoint: PostgresEndpoint, database: str = "social", owner: str = OWNER) -> str:
    """See ``examples.filling.fill``; returns the owner's connection string."""
    return fill(endpoint, database, owner, SCHEMA, rows)


main = command("social", load, "the social network", f"{USERS} users, {TWEETS} tweets")

if __name__ == "__main__":
    main()
