"""Windows' and matches' own classes, without a session: which days are one group, and how long events are kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import compiled
from deploy.local.stack import LocalStack
from deploy.spark import build
from spark.machine.settings import JAVA_OPTIONS

PROGRAM = Path(__file__).parents[1] / "support" / "TimedCheck.java"
CLASSES = ("Timed", "Happenings")
Check = Callable[..., list[str]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Runs the program."""
    java, jar = LocalStack().site.jdk.home / "bin", tmp_path_factory.mktemp("timed") / "timed.jar"
    sources = [PROGRAM, *(source for source in build.SOURCES if source.stem in CLASSES)]
    compiled.build(str(java / "javac"), sources, [build.spark_jars()], jar)

    def said(*words: str, zone: str = "UTC", options: str = "") -> list[str]:
        opened = "java.base/sun.util.calendar=ALL-UNNAMED"  # as Spark has it
        command = [str(java / "java"), "--add-opens", opened, *options.split()]
        command += ["-cp", f"{jar}:{build.spark_jars()}/*", "headwater.spark.TimedCheck", *words]
        at_home = {**os.environ, "TZ": zone}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=at_home)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return said


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_each_day_is_a_group_of_its_own_and_those_of_four_digits_keep_their_names(check: Check, zone: str) -> None:
    near = ["0001-01-01", "1582-10-04", "1582-10-15", "1970-01-01", "2024-05-01", "9999-12-31"]
    assert check("days", *near, zone=zone) == near
    far = check("days", "+12024-05-01", "+22024-05-01", "+10000-01-01", "0000-12-31", "-0043-03-15", zone=zone)
    assert len({*far, *near}) == len(far) + len(near)


def test_a_day_that_the_machines_own_zone_does_not_have_stays_what_it_is(check: Check) -> None:
    """Samoa went from the 29th to the 31st."""
    assert check("days", "2011-12-30", "2011-12-31", zone="Pacific/Apia", options=JAVA_OPTIONS) == [
        "2011-12-30",
        "2011-12-31",
    ]


def test_a_first_event_is_kept_for_as_long_as_what_follows_it_at_the_last_microsecond_is_taken(check: Check) -> None:
    """Of two events at the end of the time the second counts too: an earlier one alone would be refused."""
    assert check("forget", "10", "10") == ["kept 1 settled"]
    assert check("forget", "11", "10") == ["forgotten"]


def test_who_gets_no_earlier_one_any_more_is_settled_and_not_before(check: Check) -> None:
    assert check("forget", "0", "10") == ["kept 1 open"]
    assert check("forget", "1", "10") == ["kept 1 settled"]
