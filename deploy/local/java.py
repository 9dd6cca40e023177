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

__all__ = ["Jdk", "candidates", "choose", "read"]


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
