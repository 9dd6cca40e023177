"""The rules by which gaps are told from normal work, and what closes them, without a server."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson
import psycopg
import pytest

from cdc.catalogue import Column, Table
from cdc.errors import ConfigError, SourceChanged
from cdc.join.comparable import respelled
from cdc.records.debezium_json import Decoder
from cdc.records.encoding import JSON
from cdc.types.times import days_of
from connectors.captured.captured import Captured
from connectors.database.history import Moment
from connectors.database.slot import Slot
from connectors.debezium import connector_config
from connectors.drop import plan_drop
from connectors.gaps.renamed import refuse_renamed
from connectors.gaps.source_gaps import (
    Remembered,
    refuse_forgotten,
    refuse_future,
    refuse_moved,
    refuse_other,
    refuse_other_database,
    refuse_shorter,
)
from connectors.names import Names
from connectors.offset import moved, stored_lsn
from connectors.resnapshot import Wish, chosen, resnapshot
from connectors.snapshots.absent_keys import KeyCheck, ancient, key_text, unsure
from connectors.snapshots.conditions import unfit
from connectors.snapshots.missed_deletes import ghost_event, standing
from tests.support.connector_cases import catalogue, pipeline

NOW = datetime(2026, 1, 1, tzinfo=UTC)


HERE = Moment("7", 1, standby=False, wal_lsn=1000)
KNOWN = Remembered("7", 1, wal_lsn=900, confirmed_lsn=700, offset_lsn=800, runner="r", installation="i", witness=5)


def test_what_is_remembered_is_plain_json() -> None:
    assert Remembered(**orjson.loads(orjson.dumps(asdict(KNOWN)))) == KNOWN


def test_the_offset_is_the_highest_of_its_numbers() -> None:
    assert stored_lsn({"lsn": 5, "lsn_commit": 9, "lsn_proc": 5}) == 9, "an interleaved transaction's first record"
    assert stored_lsn({"lsn": 5, "lsn_commit": None}) == 5
    assert stored_lsn({"lsn": 5, "snapshot": "INITIAL"}) is None
    assert stored_lsn(None) is None


@pytest.mark.parametrize("remembered", [None, KNOWN, replace(KNOWN, wal_lsn=1000)])
def test_the_same_history_goes_on(remembered: Remembered | None) -> None:
    refuse_moved(pipeline(), HERE, remembered)
    refuse_forgotten(remembered, ("i", 5))
    refuse_forgotten(remembered, ("i", 6))
    refuse_future(HERE, {"lsn": 1000})
    refuse_other({}, HERE)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(HERE, system_identifier="8"), "another Postgres cluster"),
        (replace(HERE, timeline=2), "is on timeline 2, not 1"),
    ],
)
def test_another_history_is_refused(now: Moment, why: str) -> None:
    with pytest.raises(SourceChanged, match=why) as error:
        refuse_moved(pipeline(), now, KNOWN)
    assert "headwater recapture FILE" in error.value.fix


def test_a_standby_may_be_behind() -> None:
    refuse_moved(pipeline(), replace(HERE, standby=True, wal_lsn=1), KNOWN)
    refuse_shorter(pipeline(), replace(HERE, standby=True, wal_lsn=1), KNOWN, ("i", 5))
    refuse_future(replace(HERE, standby=True), {"lsn": 2000})


@pytest.mark.parametrize("witness", [("i", 4), ("i", 0), None])
def test_a_copy_does_not_know_the_last_number(witness: tuple[str, int] | None) -> None:
    with pytest.raises(SourceChanged, match="restored"):
        refuse_forgotten(KNOWN, witness)


@pytest.mark.parametrize("witness", [("i", 5), None])
def test_a_shorter_log_is_refused(witness: tuple[str, int] | None) -> None:
    with pytest.raises(SourceChanged, match="went to 0/384 before: it was restored"):
        refuse_shorter(pipeline(), replace(HERE, wal_lsn=899), KNOWN, witness)
    refuse_shorter(pipeline(), replace(HERE, wal_lsn=900), KNOWN, witness)


def test_another_installation_voids_what_was_remembered() -> None:
    refuse_shorter(pipeline(), replace(HERE, wal_lsn=1), KNOWN, ("j", 0))
    refuse_forgotten(KNOWN, ("j", 0))
    refuse_forgotten(replace(KNOWN, installation=None), None)


@pytest.mark.parametrize(
    "offset", [{"lsn": 1001}, {"lsn": 5, "lsn_commit": 1001}, {"lsn": 1001, "snapshot": "INITIAL"}]
)
def test_nothing_was_read_beyond_the_end(offset: dict[str, Any]) -> None:
    with pytest.raises(SourceChanged, match="has read up to 0/3E9"):
        refuse_future(HERE, offset)


def test_the_connector_knows_its_cluster() -> None:
    with pytest.raises(SourceChanged, match="made for the Postgres cluster 8"):
        refuse_other({"headwater.system.identifier": "8"}, HERE)


SLOT = Slot("pgoutput", "x", False, None, 1, "reserved", 0, None, False, False)


@pytest.mark.parametrize("slot", [None, SLOT])
def test_a_database_that_was_renamed_is_no_other(slot: Slot | None) -> None:
    refuse_other_database("p", "x", {"database.dbname": "as_it_was_called"}, slot)


def test_another_database_of_the_cluster_is_refused() -> None:
    with pytest.raises(SourceChanged, match="pipeline p captures database x already, and the file names y") as error:
        refuse_other_database("p", "y", {"database.dbname": "x"}, SLOT)
    assert "another `name`" in error.value.fix
    # Without --keep-sinks readers saw nothing until all was filled again, and without --topics `apply` was refused.
    for said in ("`source.database: x`", "drop OLDFILE --topics --keep-sinks` with", "then `headwater recapture FILE`"):
        assert said in error.value.fix


def test_to_drop_what_another_database_has_is_refused_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "correct source.slot", and that was refused in turn: the connector has this slot."""
    running = SimpleNamespace(config={"database.dbname": "before"})
    monkeypatch.setattr("connectors.drop.read_connector", lambda *_: running)
    monkeypatch.setattr("connectors.drop.read_slot", lambda *_: replace(SLOT, database="before"))
    made = pipeline()
    servers: Any = SimpleNamespace(pipeline=made, names=Names.of(made), connect=None, connector="c", source=None)
    with pytest.raises(SourceChanged, match="captures database before already, and the file names flights"):
        plan_drop(servers, topics=True)


def test_rows_of_another_database_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy put in the database's place has our tables: the slot was made anew there, and its rows stood in the log
    beside those of the other one; or it was asked for rows by a signal that nobody reads."""
    made = pipeline()
    running = SimpleNamespace(config={"database.dbname": "flights"}, offset={"lsn": 5})
    servers: Any = SimpleNamespace(
        pipeline=made, names=Names.of(made), setup=None, source=None, connect=None, connector="c"
    )
    monkeypatch.setattr("connectors.resnapshot.open_servers", lambda _: nullcontext(servers))
    monkeypatch.setattr("connectors.resnapshot.changing", nullcontext)
    monkeypatch.setattr("connectors.resnapshot.refuse_foreign", lambda *_: None)
    monkeypatch.setattr("connectors.resnapshot.read_captured", lambda *_: {"public.flights": None})
    monkeypatch.setattr("connectors.resnapshot.read_slot", lambda *_: replace(SLOT, database="flights_old"))
    monkeypatch.setattr("connectors.resnapshot.read_connector", lambda *_: running)
    with pytest.raises(SourceChanged, match="its slot decodes flights_old"):
        resnapshot(made, Wish(()))


@pytest.mark.parametrize(
    ("parts", "has", "asked"),
    [
        ({"source": {"slot": "shop_slot"}}, "source.slot: headwater_flights", "shop_slot"),
        ({"source": {"publication": "p"}}, "source.publication: headwater_flights", "p"),
        ({"source": {"schema": "other"}}, "source.schema: headwater", "other"),
        ({"kafka": {"topic_prefix": "shop"}}, "kafka.topic_prefix: flights", "shop"),
    ],
)
def test_a_name_is_not_changed_under_a_connector(parts: dict[str, Any], has: str, asked: str) -> None:
    """Its slot stayed, kept WAL without bound, and nobody watched it."""
    running = connector_config(pipeline(), catalogue())
    with pytest.raises(SourceChanged, match=f"is captured with {has}, and the file names {asked}") as refused:
        refuse_renamed(pipeline(**parts), running)
    assert f"put back `{has}`" in refused.value.fix and "headwater drop FILE --topics" in refused.value.fix
    refuse_renamed(pipeline(**parts), connector_config(pipeline(**parts), catalogue()))


def test_what_a_connector_is_called_by_its_own_options_counts() -> None:
    own = pipeline(connect={"options": {"slot.name": "theirs", "max.batch.size": 1}})
    refuse_renamed(own, connector_config(own, catalogue()))
    with pytest.raises(SourceChanged, match=r"source\.slot: theirs, and the file names headwater_flights"):
        refuse_renamed(pipeline(), connector_config(own, catalogue()))
    with pytest.raises(SourceChanged, match=r"source\.slot: headwater_flights, and the file names theirs"):
        refuse_renamed(own, connector_config(pipeline(), catalogue()))
    refuse_renamed(own, {})


# -- closing one -------------------------------------------------------------------------------------------------------


def test_an_offset_is_moved_without_what_was_under_way() -> None:
    before = {
        "lsn": 5,
        "lsn_proc": 5,
        "lsn_commit": 4,
        "lsn_events_processed": 2,
        "txId": 8,
        "messageType": "UPDATE",
        "incremental_snapshot_primary_key": "x",
    }
    assert moved(before, 100, 2.0) == {
        "lsn": 100,
        "lsn_proc": 100,
        "lsn_commit": 100,
        "txId": 8,
        "messageType": "COMMIT",
        "ts_usec": 2_000_000,
    }


def test_tables_are_chosen_by_name_with_near_misses() -> None:
    there = {name: Captured(name, "done", None, NOW) for name in ("public.orders", "sales.orders", "public.x")}
    assert chosen(Wish([]), there) == sorted(there)
    assert chosen(Wish(["public.x", "public.x"]), there) == ["public.x"]
    with pytest.raises(ConfigError, match=r"did you mean public\.orders"):
        chosen(Wish(["public.order"]), there)


@pytest.mark.parametrize(
    "source",
    [
        {"lsn": 50, "sequence": '["40","50"]', "snapshot": "false"},
        {"lsn": 50, "sequence": '["70","50"]', "snapshot": "false"},
        {"lsn": 50, "sequence": '[null,"50"]', "snapshot": "false"},  # the first transaction: lifted
        {"lsn": 60, "sequence": '[null,"60"]', "snapshot": "first"},
        {"lsn": None, "sequence": '["80","80"]', "snapshot": "incremental"},
    ],
)
def test_a_ghosts_delete_stands_where_the_ghost_stands(source: dict[str, Any]) -> None:
    decoder = Decoder(Table("public", "t", (Column("id", "integer", "int4", nullable=False),), ("id",)), 0, 60)
    source |= {"schema": "public", "table": "t", "ts_ms": 1}
    op = "c" if source["snapshot"] == "false" else "r"
    alive = decoder.decode(b'{"id":1}', orjson.dumps({"op": op, "source": source, "after": {"id": 1}}), "t", 0, 1)
    event = JSON.dumps(ghost_event({**source, "lsn": 1, "sequence": "[]"}, standing(source).decode(), 5, 900), b"")
    dead = decoder.decode(b'{"id":1}', event, "t", 0, 2)
    assert (dead.op.value, dead.position) == ("d", alive.position)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("a = 'x;y' AND (b[1] = 2 OR c ~ '\\d')", None),
        ('"odd; name" = 1', None),
        ("a = 'it''s'", None),
        ("a = 1;", "; is not allowed"),
        ("a -- b", "-- is not allowed"),
        ("a = 1) OR (b = 2", "closes a parenthesis"),
        ("(a = 1", "not closed"),
        ("a = 'x", "quote is not closed"),
        ("a = E'\\' OR true --'", "quote is not closed"),
        ("  ", "empty"),
    ],
)
def test_what_can_not_be_one_condition(condition: str, why: str | None) -> None:
    found = unfit(condition)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        ("int8", 9007199254740993, "9007199254740993"),
        ("numeric", "NAN", "NaN"),
        ("bool", True, "true"),
        ("bit", True, "1"),
        ("bit", False, "0"),
        ("text", 'a"\\,{', 'a"\\,{'),
        ("bytea", "AP8=", "\\x00ff"),
        ("date", days_of(-43, 3, 15), "0044-03-15 BC"),
        ("date", 2932897, "10000-01-01"),
        ("timestamp", 1_000_001, "1970-01-01T00:00:01.000001"),
        ("timestamp", (1 << 63) - 1, "infinity"),
        ("timestamptz", "2026-11-21T10:00:00.5Z", "2026-11-21T10:00:00.5Z"),
        ("float8", "NaN", "NaN"),
        ("float8", 0.1, "0.1"),
    ],
)
def test_keys_become_what_postgres_reads(kind: str, raw: Any, text: str) -> None:
    assert key_text(Column("k", kind, kind), raw) == text


def test_keys_that_debezium_may_change_are_not_looked_for() -> None:
    def table(*columns: Column) -> Table:
        return Table("public", "t", columns, tuple(column.name for column in columns))

    assert unsure(table(Column("a", "integer", "int4"), Column("b", "text", "text"))) is None
    assert "b of type timetz" in str(unsure(table(Column("a", "integer", "int4"), Column("b", "timetz", "timetz"))))
    assert "b of type bit varying(8)" in str(unsure(table(Column("b", "bit varying(8)", "varbit"))))
    assert "b of type flags" in str(unsure(table(Column("b", "flags", "bit")))), "how many zeros it begins with"
    assert unsure(table(Column("b", "bit(8)", "bit"))) is None
    assert "a of type integer[]" in str(unsure(table(Column("a", "integer[]", "int4", array=True))))
    assert "has no key" in str(unsure(Table("public", "t", (), ())))


def test_a_key_with_a_sign_of_percent_is_looked_for() -> None:
    """The query has parameters, in which such a sign begins a placeholder; identifiers come with it as it is."""
    columns = (Column("rate%", "integer", "int4"), Column("100%{}", '"a%"', "enum"))
    asked = SimpleNamespace(
        adapters=psycopg.adapters,
        connection=None,
        execute=lambda *_: [("rate%", "integer", None), ("100%{}", '"a%"', "x%")],
    )
    check = KeyCheck(asked, Table("public", "t%", columns, ("rate%", "100%{}")))  # type: ignore[arg-type]
    text = check.query.as_string(None)
    assert text % ("A", "B") == (
        'SELECT k.nth FROM unnest(A::text[], B::text[]) WITH ORDINALITY AS k("k0", "k1", nth) WHERE NOT EXISTS'
        ' (SELECT FROM "public"."t%" t WHERE t."rate%" OPERATOR("pg_catalog".=) k."k0"::integer'
        ' AND t."100%{}" OPERATOR("x%".=) k."k1"::"a%")'
    )


def test_a_key_that_the_table_has_in_another_spelling_is_absent() -> None:
    """`bob` became `Bob` in a gap: citext says that they are equal, and `bob` stayed beside `Bob` in every sink."""
    asked = SimpleNamespace(
        adapters=psycopg.adapters, connection=None, execute=lambda *_: [("k", "citext", "x"), ("n", "integer", None)]
    )
    columns = (Column("k", "citext", "citext"), Column("n", "integer", "int4"))
    check = KeyCheck(asked, Table("public", "t", columns, ("k", "n")))  # type: ignore[arg-type]
    assert check.query.as_string(None).endswith(
        'WHERE NOT EXISTS (SELECT FROM "public"."t" t WHERE t."k" OPERATOR("x".=) k."k0"::citext'
        ' AND concat(t."k") COLLATE "C" OPERATOR(pg_catalog.=) concat(k."k0"::citext)'
        ' AND t."n" OPERATOR("pg_catalog".=) k."k1"::integer)'
    )


@pytest.mark.parametrize(
    ("column", "may"),
    [
        (Column("k", "numeric", "numeric"), True),
        (Column("k", "numeric(12,2)", "numeric", precision=12, scale=2), False),
        (Column("k", "bpchar", "bpchar"), True),
        (Column("k", "character(8)", "bpchar"), False),
        (Column("k", "text", "text", collated=True), True),
        *((Column("k", one, one), True) for one in ("citext", "interval", "jsonb", "float4", "float8")),
        *((Column("k", one, one), False) for one in ("text", "int8", "uuid", "timestamptz", "inet", "ltree")),
    ],
)
def test_which_values_may_be_respelled(column: Column, may: bool) -> None:
    assert respelled(column) is may


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("0044-03-15 BC", True),
        ("1582-10-14", True),
        ("1582-10-15", False),
        ("10000-01-01", False),
        ("2026-11-21T10:00:00Z", False),
        ("infinity", False),
        ("-infinity", True),
    ],
)
def test_moments_of_javas_other_calendar_are_left_alone(text: str, before: bool) -> None:
    assert ancient(Column("k", "date", "date"), text) == before
    assert not ancient(Column("k", "text", "text"), text)
