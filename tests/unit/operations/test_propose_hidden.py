"""What `init` puts into no document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cdc.catalogue import Table
from cdc.errors import ConfigError
from cdc.pipeline.loading import loads
from operations.propose.proposal import draft
from operations.propose.views import propose_views
from operations.propose.writing import SETUP_PASSWORD, SOURCE_PASSWORD, Draft, written
from tests.support.proposed_tables import KEYS, NOBODY_KNOWS, SHOP, looked, points, table, tables, views

USERS = table("users", "id", "password", kinds={"password": "text"})
SESSIONS = table("sessions", "id", "user_id", kinds={"id": "varchar"})


def drafted(found: Mapping[str, Table], sinks: Sequence[str]) -> Draft:
    return draft(looked(tables=found, foreign_keys=()), name="x", sinks=sinks)


def test_sessions_and_tokens_are_in_no_document() -> None:
    """Who reads them from the index is logged in as somebody else."""
    words = dict.fromkeys(("session_key", "session_data", "key", "id"), "varchar")
    secret = (
        table("django_session", "session_key", "session_data", kinds=words),
        table("authtoken_token", "key", "user_id", kinds=words),
        table("sessions", "id", "user_id", kinds=words),
    )
    harmless = (table("workout_sessions", "id", "room"), table("keys", "key", "room", kinds=words))
    owned = [points(name, "user_id", "users", "id") for name in ("authtoken_token", "sessions")]
    proposal = propose_views(SHOP | tables(*secret, *harmless), [*KEYS, *owned], NOBODY_KNOWS, joins=True)
    assert {"workout_session", "key"} <= views(proposal).keys()
    assert {one.name for one in proposal.left_out} == {table.qualified for table in secret}
    shown = {join.table for view in proposal.views for join in view.joins} | {
        view.table.qualified for view in proposal.views
    }
    assert not shown & {name for table in secret for name in (table.name, table.qualified)}


@pytest.mark.parametrize(
    ("left", "sink", "why"),
    [(USERS, "iceberg", "password looks like a secret"), (SESSIONS, "elasticsearch", "looks like a secret")],
)
def test_where_no_table_is_left_for_the_only_sink_the_reason_is_told(left: Table, sink: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"no table can be shown in {sink}.*{why}") as raised:
        drafted(tables(left), [sink])
    assert "the proposed file" not in raised.value.what and "another kind of sink" in raised.value.fix


@pytest.mark.parametrize(("left", "gone", "kept"), [(USERS, "iceberg", {"cache"}), (SESSIONS, "redis", {"warehouse"})])
def test_a_sink_for_which_nothing_is_left_is_left_out(left: Table, gone: str, kept: set[str]) -> None:
    made = drafted(tables(left), ["redis", "iceberg"])
    assert f"sink {gone}" in {one.name for one in made.left_out}
    assert loads(written(made), "p.yaml", {SOURCE_PASSWORD: "a", SETUP_PASSWORD: "b"}).sinks.keys() == kept


def test_where_the_last_view_would_be_refused_nothing_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> None:
        raise ConfigError("view user: no good")

    monkeypatch.setattr("operations.propose.held.resolve_view", refused)
    with pytest.raises(ConfigError, match=r"no table can be shown in redis \(view user: no good\)"):
        drafted(tables(USERS), ["redis"])
    made = drafted(tables(table("users", "id")), ["redis", "iceberg"])
    assert made.sinks == ("iceberg",) and "sink redis" in {one.name for one in made.left_out}
