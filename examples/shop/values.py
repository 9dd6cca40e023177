"""Values of every type from a seeded random source, as the text that Postgres reads (None = NULL).

Text, and not Python objects: Python has no year 10000, no infinite timestamp and no interval of months. About one value
in ten is an edge: what a codec is most likely to get wrong.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from random import Random

Value = str | None

EDGE_SHARE = 0.1

TEXT_EDGES = (
    "",
    " ",
    "NULL",
    "null",
    "\\N",
    "\\u0000",  # six characters that look like a NUL
    "__debezium_unavailable_value ",  # nearly Debezium's placeholder; a real one could not be told apart
    "a|b\\c",  # the separator and the escape of composite document ids
    "tab\tline\nreturn\r",
    "quote \" ' back\\slash $1 %s {}",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🛒👩‍👩‍👧",  # four bytes a character in UTF-8
    "e\u0301 is not \u00e9",  # must not be normalised
    "\u202eright to left\u202c \u200b\ufeff",
    "<script>alert(1)</script>",
    "x" * 300,  # longer than Elasticsearch's usual keyword limit of 256
)
NUMERIC_EDGES = ("0", "-0.00", "NaN", "1e-30", "123456789012345678901234567890.123456789", "-0.1", "100.000", "9" * 60)
NUMERIC_12_2_EDGES = ("0", "9999999999.99", "-9999999999.99", "0.01", "NaN", "1234567.10")
DOUBLE_EDGES = ("0", "-0", "NaN", "Infinity", "-Infinity", "1e308", "5e-324", "0.1", "9007199254740993", "1e21")
REAL_EDGES = ("0", "NaN", "Infinity", "-Infinity", "3.4028235e+38", "1e-45", "0.1", "16777217")
DATE_EDGES = (
    "infinity",
    "-infinity",
    "9999-12-31",
    "10000-01-01",
    "1970-01-01",
    "1900-02-28",
    "0001-01-01",
    # No year before 1: Debezium's snapshot drops the sign (docs/types.md), so no sink could be equal.
)
TIMESTAMP_EDGES = (
    "infinity",
    "-infinity",
    "9999-12-31 23:59:59.999999",
    "10000-01-01 00:00:00",
    "1970-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "2024-02-29 12:00:00.000001",
    "2013-11-03 01:30:00",  # comes twice in New York
    "0001-01-01 00:00:00",
)
TIME_EDGES = ("00:00", "24:00", "23:59:59.999999", "12:00:00.1")
TIMETZ_EDGES = ("00:00+00", "23:59:59.999999-12", "12:00:00.5+05:45", "08:00+14")
INTERVAL_EDGES = (
    "0",
    "1 year 2 months 3 days 04:05:06.789",
    "-1 year +2 days -03:00",
    "1 microsecond",
    "-0.000001 seconds",
    "100 years",
    "25:00:00",
)
INET_EDGES = ("0.0.0.0/0", "10.0.0.0/8", "::1", "2001:db8::8a2e:370:7334/64", "255.255.255.255")
BYTEA_EDGES = ("\\x", "\\x00", "\\xff00ff", "\\x" + "00" * 64)
TEXT_ARRAY_EDGES = ("{}", "{NULL}", '{"NULL",""}', '{"a,b","c\\"d","{}","\\\\"}', '{"🛒"}')
INT_ARRAY_EDGES = ("{}", "{NULL,0}", "{2147483647,-2147483648}")
# No NaN here: Debezium 3.7 can't read it inside an array and sends NULL for the whole array (its log has a warning).
NUMERIC_ARRAY_EDGES = ("{}", "{NULL}", "{0.001,0.000}", "{99999.999,-99999.999}")
DOUBLE_ARRAY_EDGES = ("{}", "{NaN,Infinity,-Infinity}", "{NULL,1e308,0.1}")
DATE_ARRAY_EDGES = ("{}", "{NULL}", "{infinity,2024-02-29}")
HSTORE_EDGES = ("", '"empty"=>""', '"null"=>NULL', '"quo\\"te"=>"a=>b, c"', '"🛒"=>"\\\\"')
JSONB_EDGES = (
    "null",
    "{}",
    "[]",
    '""',
    "0.10",
    "1e400",
    "12345678901234567890.123456789",
    '{"deep": {"a": [1, {"b": null}]}, "text": "🛒\\n"}',
    "true",
)
# json keeps what jsonb would tidy away: repeated keys, spaces, their order, and even \u0000.
JSON_EDGES = ('{"b": 1,  "a": 2, "b": 3}', " [ 1 ,2 ] ", '{"nul": "\\u0000"}', "1.0", '{"big": 12345678901234567890}')

WORDS = tuple(
    word
    for line in (
        "amber anchor basin beacon birch bolt brass cedar chalk cinder copper coral crane delta drift ember fjord",
        "flint grove harbour heather indigo iron ivory jasper kestrel lantern larch linen maple marsh meadow moss oak",
        "onyx opal osprey pebble pine plume quartz raven reed river saffron sage slate sparrow spruce stone tarn",
        "thistle timber",
    )
    for word in line.split()
)
MICROSECONDS_PER_DAY = 86_400_000_000


def pick(rng: Random, edges: Sequence[str], usual: str, *, nullable: bool = True) -> Value:
    """``usual``, or in one case of ten an edge, or (where it may be) NULL in another."""
    draw = rng.random()
    if draw < EDGE_SHARE:
        return rng.choice(edges)
    return None if nullable and draw < 2 * EDGE_SHARE else usual


def uuid4(rng: Random) -> str:
    """A random UUID that the seed decides."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def words(rng: Random, low: int, high: int) -> str:
    """``low`` to ``high`` words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))


def large_text(rng: Random) -> str:
    """3 to 20 thousand characters: stored out of line."""
    return words(rng, 500, 3_000)


def money(rng: Random, top: int = 100_000) -> str:
    """An amount with two decimals, below ``top`` cents."""
    cents = rng.randrange(top)
    return f"{cents // 100}.{cents % 100:02d}"


def date(rng: Random) -> str:
    """A day of 1950 to 2029."""
    return f"{rng.randint(1950, 2029)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def time(rng: Random) -> str:
    """A time of day with microseconds (the last digits are often zeros)."""
    micros = rng.randrange(MICROSECONDS_PER_DAY)
    micros -= micros % rng.choice((1, 1_000, 100_000, 1_000_000))
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def timestamp(rng: Random) -> str:
    """A timestamp of 2013 to 2026, microseconds included."""
    return f"{rng.randint(2013, 2026)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} {time(rng)}"


def zone(rng: Random) -> str:
    """An offset from UTC."""
    return rng.choice(("+00", "+01", "-05", "+05:30", "-09:30", "+14"))


def interval(rng: Random) -> str:
    """Months, days and seconds: three parts that do not convert into each other."""
    seconds = f"{rng.randint(0, 90_000)}.{rng.randrange(1000):03d}"
    return f"{rng.randint(0, 30)} months {rng.randint(-40, 40)} days {seconds} seconds"


def array(items: Sequence[str]) -> str:
    """A Postgres array literal."""
    quoted = (item.replace("\\", "\\\\").replace('"', '\\"') for item in items)
    return "{" + ",".join(f'"{item}"' for item in quoted) + "}"


def json_object(rng: Random) -> str:
    """A small object with nesting."""
    tree = {
        rng.choice(WORDS): rng.randint(-1000, 1000),
        "on": rng.random() < 0.5,
        "list": [rng.choice(WORDS) for _ in range(rng.randint(0, 3))],
        "nested": {"price": float(money(rng)), "none": None},
    }
    return json.dumps(tree, ensure_ascii=rng.random() < 0.5)
