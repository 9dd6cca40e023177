"""What a preflight check is given, and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cdc.catalogue import Catalogue
from cdc.errors import SourceError
from cdc.log.client import Kafka
from cdc.pipeline import Pipeline
from connectors.names import Names
from connectors.postgres import Connection
from connectors.rest import ConnectClient
from connectors.tables.catalogue import read_catalogue
from connectors.tables.facts import TableFacts, read_facts


class Level(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"  # it will not work, or it will lose data
    WARNING = "warning"  # it works, until something else happens
    NOTE = "note"  # good to know


@dataclass(frozen=True)
class Finding:
    """Something about the system that is not as it should be.

    Attributes:
        level: how bad.
        about: the object: a table, a setting, a role.
        message: what is wrong and what that leads to.
        fix: what to do, best as a command or a line of SQL.
        many: what is said of several objects that have it in common, with ``{n}`` and ``{names}``; "" where each has
            its own.
        short: what a person reads in place of ``message``, where that may name hundreds; "" where it is the same.
        short_fix: so of ``fix``.
    """

    level: Level
    about: str
    message: str
    fix: str = ""
    many: str = ""
    short: str = ""
    short_fix: str = ""


@dataclass
class Site:
    """The servers as far as they answer, and facts that several checks use.

    Attributes:
        pipeline: the loaded file.
        source: Postgres as the replication role, or why not.
        setup: Postgres as the owning role, or why not.
        kafka: the brokers' admin interface (made without connecting).
        connect: Kafka Connect's client (made without connecting).
        anew: what is captured is about to be left, and is captured anew then: no table is captured already.
        failed: names of checks that found an error, could not run, or were skipped because of one that did.
    """

    pipeline: Pipeline
    source: Connection | SourceError
    setup: Connection | SourceError
    kafka: Kafka
    connect: ConnectClient
    anew: bool = False
    names: Names = field(init=False)
    failed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names = Names.of(self.pipeline)

    @property
    def db(self) -> Connection:
        """Postgres as the replication role; checks that need it are skipped when there is none."""
        assert not isinstance(self.source, SourceError)
        return self.source

    @property
    def setup_or_db(self) -> Connection:
        """Postgres as the owning role, if it is let in: it may read our tables before they are granted."""
        return self.db if isinstance(self.setup, SourceError) else self.setup

    @cached_property
    def catalogue(self) -> Catalogue:
        """The captured tables.

        Raises:
            SourceError: one is not there; the check ``tables`` says which.
        """
        return read_catalogue(self.db, self.pipeline.source.tables)

    @cached_property
    def facts(self) -> Mapping[str, TableFacts]:
        """Facts of the captured tables."""
        return read_facts(self.db, self.catalogue.tables, self.pipeline.source.user)

    def setting(self, name: str) -> str:
        """A setting of the server."""
        row = self.db.execute("SELECT setting FROM pg_settings WHERE name = %s", [name]).fetchone()
        return str(row[0]) if row else ""


@dataclass(frozen=True)
class Check:
    """One question to the system.

    Attributes:
        name: short and stable, for ``--json``.
        title: what holds when nothing is found.
        run: answers with findings; none means all is well. Raises HeadwaterError or the client's own error when it
            could not find out.
        needs: checks that must have found no error, or this one is skipped.
    """

    name: str
    title: str
    run: Callable[[Site], Iterable[Finding]]
    needs: tuple[str, ...] = ()


class Skipped(Exception):
    """Raised by a check that this server gives no answer to."""
