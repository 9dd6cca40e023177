"""Find a Java for Kafka, Connect and Elasticsearch, beside which Spark may need another (cdc/java.py)."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.errors import StackError
from cdc.java import Jdk, candidates, read
from deploy.local.account import Account, blocked_at

OLDEST = 17
# The newest version the servers were tried on. Newer ones are taken only if nothing else is there.
NEWEST_TRIED = 25

__all__ = ["Jdk", "candidates", "choose", "compiler", "read"]


def choose(account: Account | None = None) -> Jdk:
    """JAVA_HOME if it will do, else the newest tried Java, else any newer one.

    Args:
        account: the user that must be able to run it too.

    Raises:
        StackError: no Java 17 or newer.
    """
    found = [jdk for home in candidates() if (jdk := read(home)) is not None]
    usable = [j for j in found if j.major >= OLDEST and (account is None or blocked_at(j.home, account) is None)]
    if not usable:
        seen = ", ".join(f"{jdk.version} in {jdk.home}" for jdk in found) or "none"
        raise StackError(
            f"no usable Java {OLDEST} or newer (found: {seen})",
            means="Kafka, Kafka Connect and Elasticsearch can't start",
            fix="install a JDK (Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME",
        )
    named = os.environ.get("JAVA_HOME")
    if named and usable[0].home == Path(named):
        return usable[0]
    tried = [jdk for jdk in usable if jdk.major <= NEWEST_TRIED]
    return max(tried, key=lambda jdk: jdk.major) if tried else min(usable, key=lambda jdk: jdk.major)


def compiler(jdk: Jdk) -> Path:
    """The ``javac`` for our own classes: that of this Java, or where it is a JRE the newest of this machine.

    What is compiled is the same (``--release``). Returns this Java's path, where none is, if there is no other.
    """
    homes = [jdk, *(one for home in candidates() if (one := read(home)) is not None and one.major >= OLDEST)]
    found = [one for one in homes if os.access(_javac(one), os.X_OK)]
    return _javac(jdk if jdk in found or not found else max(found, key=lambda one: one.major))


def _javac(jdk: Jdk) -> Path:
    return jdk.home / "bin" / "javac"
