"""Fill the profiles: ``python -m examples.profiles.load``. The same rows every time; a second run changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from random import Random

from examples.common import PostgresEndpoint
from examples.filling import Row, command, fill

OWNER = "profiles_owner"
SCHEMA = Path(__file__).with_name("schema.sql")
PEOPLE = 60
COMPANIES = (
    ("Headwater", "software"), ("Brackwater Bank", "finance"), ("Delta Logistics", "transport"), ("Eddy & Co", "law"),
    ("Fjord Foods", "food"), ("Gezeiten Energie", "energy"), ("Île Santé", "health"), ("Jetty Games", "software"),
)  # fmt: skip
SKILLS = ("Postgres", "Kafka", "Spark", "Elasticsearch", "Redis", "Python", "Cooking", "Negotiation", "Übersetzen")
FIRST = ("Amara", "Björn", "Carmen", "Dev", "Elif", "Femi", "Grace", "Hugo", "Ines", "Joon")
LAST = ("Adler", "Brook", "Castro", "Diallo", "Egede", "Fontaine")
TITLES = ("Engineer", "Analyst", "Head of Data", "Cook", "Counsel", "Intern")


def rows(seed: int = 1) -> Iterator[tuple[str, list[Row]]]:
    """(table, its rows), parents first."""
    rng = Random(seed)
    companies = range(1, len(COMPANIES) + 1)
    yield "companies", [(n, *company) for n, company in enumerate(COMPANIES, 1)]
    people: list[Row] = []
    for n in range(1, PEOPLE + 1):
        name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        headline = rng.choice((None, f"{rng.choice(TITLES)}, likes {rng.choice(SKILLS)}"))
        manager = rng.randrange(1, n) if n > 1 and rng.random() < 0.8 else None
        people.append((n, name, headline, rng.random() < 0.1, rng.choice((None, *companies)), manager))
    yield "people", people
    positions: list[Row] = []
    for person in range(1, PEOPLE + 1):
        since = date(2010, 1, 1) + timedelta(days=rng.randrange(2000))
        for _ in range(rng.randint(0, 4)):
            until = since + timedelta(days=rng.randrange(100, 1000))
            row = (rng.choice((None, *companies)), rng.choice(TITLES), since, rng.choice((until, until, None)))
            positions.append((len(positions) + 1, person, *row))
            since = until
    yield "positions", positions
    yield "skills", list(enumerate(SKILLS, 1))
    pairs = sorted({(rng.randint(1, PEOPLE), rng.randint(1, len(SKILLS))) for _ in range(220)})
    yield "person_skills", [(*pair, rng.choice((0, rng.randrange(100)))) for pair in pairs]


def load(endpoint: PostgresEndpoint, database: str = "profiles", owner: str = OWNER) -> str:
    """See ``examples.filling.fill``; returns the owner's connection string."""
    return fill(endpoint, database, owner, SCHEMA, rows)


main = command("profiles", load, "the profiles", f"{PEOPLE} people, {len(COMPANIES)} companies")

if __name__ == "__main__":
    main()
