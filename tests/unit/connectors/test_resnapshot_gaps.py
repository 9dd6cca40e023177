"""`resnapshot` puts right what was captured, by a file that may be older than the applied one, or only saved."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError
from connectors import plan as planning
from connectors import resnapshot
from connectors.actions import Action
from connectors.actual import Actual
from connectors.captured.captured import Captured
from connectors.captured.changed import Change
from connectors.database.history import Moment
from connectors.database.publication import SENT, Publication
from connectors.names import Names
from connectors.resnapshot import Wish
from tests.support.connector_cases import catalogue, fact, pipeline
from tests.unit.connectors.test_adds_only import captured, table

FLIGHTS, THEIRS, SAVED, GONE = "public.flights", "public.theirs", "public.saved", "public.gone"
FILE = pipeline(source={"tables": ["public.*"]})
NAMES = Names.of(FILE)
LISTED = captured(FLIGHTS, THEIRS, GONE)
ANEW = Change("was dropped and made again")


def there() -> Actual:
    """Of a file that does not have one table, which is captured, and has another one, which nobody has applied."""
    tables: Catalogue = catalogue(*(table(name.removeprefix("public.")) for name in (FLIGHTS, SAVED)))
    return Actual(
        catalogue=tables,
        facts={name: fact(name=name, partitions=(), replica_identity="f") for name in tables.tables},
        publication=Publication(frozenset({THEIRS, *NAMES.published}), SENT, True, False, frozenset()),
        slot=None,
        connector=SimpleNamespace(offset={"lsn": 1}),  # type: ignore[arg-type]
        captured=LISTED,
        gaps=resnapshot.find_gaps(LISTED, {FLIGHTS: ANEW}),
        topics={},
        records={},
        now=Moment("7", 1, standby=False, wal_lsn=5000),
    )


def put_right(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Change], *tables: str
) -> tuple[list[Action], list[str]]:
    """What is done, and what is told."""
    for name in ("plan_schema", "plan_write_tokens", "plan_grants", "plan_writers", "emptied_tables"):
        monkeypatch.setattr(planning, name, lambda *_: [])
    for name in ("refuse_unfit", "refuse_old_records"):
        monkeypatch.setattr(planning, name, lambda *_: None)
    monkeypatch.setattr(planning, "tables_anew", lambda *_: set())
    triggers: Any = lambda *_, adds_only=False: ([], [Action("trigger", THEIRS, "remove the TRUNCATE trigger")])  # noqa: E731
    monkeypatch.setattr(planning, "plan_truncate", triggers)
    monkeypatch.setattr(resnapshot, "find_changes", lambda *_: found)
    monkeypatch.setattr(resnapshot, "observe", lambda _: there())
    done, told = list[Action](), list[str]()
    monkeypatch.setattr(resnapshot, "run_all", lambda _, actions, __: done.extend(actions))
    setup = SimpleNamespace(info=SimpleNamespace(server_version=170000))
    kafka = SimpleNamespace(beginning=lambda _: [])
    servers: Any = SimpleNamespace(pipeline=FILE, names=NAMES, setup=setup, kafka=kafka, connector="c")
    listed: dict[str, Captured] = {name: replace(entry) for name, entry in LISTED.items()}
    resnapshot._put_right(servers, listed, Wish(tables), told.append)
    return done, told


def test_nothing_of_another_file_is_taken_back_and_nothing_that_was_only_saved_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another file's table went out of the publication, while the connector's list went on naming it: no change of it
    came, and the connector said RUNNING."""
    done, told = put_right(monkeypatch, {FLIGHTS: ANEW, GONE: Change("was dropped", gone=True)}, FLIGHTS)
    assert told == [f"{FLIGHTS}: not the table that was captured; put right first"], "not the one that is gone"
    assert {(action.kind, action.name) for action in done if action.kind != "topic"} == {
        ("publication", FILE.source.publication),
        ("connector", "c"),
        ("snapshot", FLIGHTS),
    }
    assert [action.detail for action in done if action.kind == "publication"] == [f"add table {FLIGHTS}"]
    made = {action.name for action in done if action.kind == "topic"}
    assert FILE.topic(FLIGHTS) in made and FILE.topic(SAVED) not in made


def test_a_table_that_is_gone_is_for_apply_to_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert put_right(monkeypatch, {GONE: Change("was dropped", gone=True)}, FLIGHTS) == ([], [])
    assert put_right(monkeypatch, {}, FLIGHTS) == ([], [])


def test_a_table_of_another_file_that_has_a_gap_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with a KeyError, and was captured no more."""
    with pytest.raises(ConfigError, match=r"public\.theirs was dropped and made again, and is not in this file"):
        put_right(monkeypatch, {THEIRS: ANEW}, THEIRS)
    assert put_right(monkeypatch, {THEIRS: ANEW}) == ([], []), "of all tables the others are read"
