"""What a session is told that the operator has settings of his own for."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.machine.settings import JAVA_OPTIONS, LOOPBACK, session_settings

DRIVER, EXECUTOR = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
CLUSTER = {EXECUTOR: JAVA_OPTIONS}
TRUST = "-Djavax.net.ssl.trustStore=/etc/ssl/java.jks"


def settings(conf: dict[str, str], place: dict[str, str] = CLUSTER) -> dict[str, str]:
    return session_settings(JAVA_OPTIONS, Path("spark.log"), "1g", place, conf, plain=False)


@pytest.mark.parametrize("key", [DRIVER, EXECUTOR])
def test_options_of_java_come_after_ours(key: str) -> None:
    """A trust store took the executors' time zone away, with which a day may come out as the next one."""
    found = settings({key: TRUST})
    assert found[key] == f"{settings({})[key]} {TRUST}" and JAVA_OPTIONS in found[key]


@pytest.mark.parametrize("key", [DRIVER, EXECUTOR])
def test_a_collector_takes_the_place_of_ours(key: str) -> None:
    """Java refuses to start with two."""
    found = settings({key: "-XX:+UseG1GC -XX:+UseStringDeduplication"})[key]
    assert "SerialGC" not in found and "-Xss4m -Xms128m -XX:Tier4" in found and found.endswith("Deduplication")
    assert "-XX:+UseSerialGC" in settings({key: "-XX:-UseGCOverheadLimit"})[key]


def test_where_there_are_no_executors_they_are_told_nothing_of_ours() -> None:
    assert settings({EXECUTOR: TRUST}, LOOPBACK)[EXECUTOR] == TRUST
