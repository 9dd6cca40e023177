"""What the router takes of a message: what Postgres would not take for a column is no event, and so a dead letter."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from cdc.catalogue import Column
from cdc.types import arrow_converter, json_converter
from cdc.types.times import canonical_timestamptz
from deploy.connect import build
from deploy.local import artifacts
from deploy.local.stack import LocalStack

PROGRAM = Path(__file__).parents[1] / "support" / "OutboxCheck.java"
NO_EVENT = "no event"
# A kind, and the form of its text; JSON values.
Route = Callable[..., list[str]]


@pytest.fixture(scope="module")
def route(tmp_path_factory: pytest.TempPathFactory) -> Route:
    """Of each value what the row's column has of it."""
    jars, folder = artifacts.ensure(["kafka"], print)["kafka"], tmp_path_factory.mktemp("outbox")
    java, jar, lines = LocalStack().site.jdk.home / "bin", folder / "headwater-outbox.jar", folder / "lines"
    build.build("headwater-outbox", str(java / "javac"), [jars], jar)

    def routed(kind: str, *values: str) -> list[str]:
        lines.write_text("\n".join(values))
        command = [str(java / "java"), "-cp", f"{jar}:{jars}/*", str(PROGRAM), str(lines), *kind.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return routed


def test_a_number_too_large_or_too_small_for_its_column_is_no_event(route: Route) -> None:
    assert route("float", "1e39", "-1e39", "1e-60", "0", "0e9", "1.5", "16777217", '"NaN"') == [
        *[NO_EVENT] * 3, "0.0", "0.0", "1.5", "1.6777216E7", NO_EVENT,
    ]  # fmt: skip
    assert route("double", "1e400", "-1e400", "1e-400", "0.0", "1e39", "1e-60") == [
        *[NO_EVENT] * 3, "0.0", "1.0E39", "1.0E-60",
    ]  # fmt: skip


def test_a_numeric_is_a_number_that_postgres_holds(route: Route) -> None:
    refused = ("true", "{}", "[1]", '"abc"', '""', '" 1"', '"0x10"', '"1,5"', "1e999999999", "1e-20000", "1e131072")
    assert route("string numeric", *refused) == [NO_EVENT] * len(refused)
    taken = {
        "12.50": "12.50", '"12.50"': "12.50", "1e3": "1000", '"-1.5E-3"': "-0.0015", "1e20000": "1" + "0" * 20_000,
        # As Debezium has it in a row.
        '"NaN"': "NAN", '"Infinity"': "POSITIVE_INFINITY", '"-Infinity"': "NEGATIVE_INFINITY", "0e20000": "0",
    }  # fmt: skip
    assert route("string numeric", *taken) == list(taken.values())
    long = json.dumps("1" * 147_500)  # of which only the length is looked at
    assert route("string numeric", long, json.dumps("1" * 131_072)) == [NO_EVENT, "1" * 131_072]
    digits = ["1" * 131_072, "-" + "1" * 131_072, "0." + "1" * 16_383, "1" * 1_001 + ".5"]
    assert route("string numeric", *digits) == digits, "bare numbers, which Jackson limits to 1,000 characters"
    assert route("string", digits[0]) == digits[:1]
    assert route("string numeric", "1" * 131_073, "1" * 147_500, "0." + "1" * 16_384) == [NO_EVENT] * 3
    assert route("string", "1e999999999", '"abc"', "1.50") == [NO_EVENT, "abc", "1.50"], "a text"


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        # As Postgres does it: halves are rounded away from zero, and then the digits are counted.
        ("9,2", {
            "12.5": "12.50", '"12.50"': "12.50", "1": "1.00", "0": "0.00", '"NaN"': "NAN", "1e3": "1000.00",
            "1.005": "1.01", "-1.005": "-1.01", "1.0049": "1.00", "1e-9": "0.00",
            "9999999.99": "9999999.99", "9999999.994": "9999999.99",
            "9999999.995": NO_EVENT, "10000000": NO_EVENT, "-1e7": NO_EVENT, '"1e131000"': NO_EVENT,
            '"Infinity"': NO_EVENT, '"-Infinity"': NO_EVENT, '"1,5"': NO_EVENT, "true": NO_EVENT,
        }),
        ("5,-2", {"1234": "1200", "1250": "1300", "49": "0", "50": "100", "9999949": "9999900", "9999950": NO_EVENT}),
        ("2,5", {"0.00099": "0.00099", "0": "0.00000", "0.000994": "0.00099", "0.000995": NO_EVENT, "1": NO_EVENT}),
        ("1000,0", {"1.5": "2", "9" * 1000: "9" * 1000, "9" * 1001: NO_EVENT}),
    ],
)  # fmt: skip
def test_a_numeric_of_so_many_digits_is_what_postgres_makes_of_the_number(
    route: Route, limits: str, taken: dict[str, str]
) -> None:
    assert dict(zip(taken, route(f"string numeric({limits})", *taken), strict=True)) == taken


def test_typed_readers_take_what_the_router_gives_of_a_numeric(route: Route) -> None:
    """It gave the words of Postgres, which the typed ones refused: such an event was a dead letter to some views."""
    column = Column("v", "numeric(9,2)", "numeric", precision=9, scale=2)
    said = route("string numeric(9,2)", '"NaN"', "1.005", "1")
    converters = arrow_converter(column), json_converter(column)
    assert [[one(value) if one else value for value in said] for one in converters] == [
        [None, Decimal("1.01"), Decimal("1.00")], ["NaN", "1.01", "1.00"],
    ]  # fmt: skip


def test_a_moment_is_one_in_utc_that_postgres_holds_and_the_codec_takes_it(route: Route) -> None:
    refused = (
        "2024-01-01T00:35:42.262486+00:00Z", "2024-01-01T10:00:00+02:00Z", "2024-01-01T10:00:00+02:00", "2024-01-01",
        "2024-02-30T10:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T10:00Z", "2024-01-01T10:00:00.Z", "now", "",
        "2024-01-01T-9999999999999999:00:00Z", "-4713-11-23T23:59:59Z", "+294277-01-01T00:00:00Z",
    )  # fmt: skip
    assert route("string timestamptz", "1704103200", *map(json.dumps, refused)) == [NO_EVENT] * (len(refused) + 1)
    taken = (
        "2024-02-29T10:00:00Z", "2024-02-29T10:00:00.5Z", "2024-02-29T10:00:00.123456789Z", "infinity", "-infinity",
        "-4713-11-24T00:00:00Z", "+294276-12-31T23:59:59.999999Z", "+10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z",
    )  # fmt: skip
    assert route("string timestamptz", *map(json.dumps, taken)) == list(taken)
    assert all(map(canonical_timestamptz, taken))
