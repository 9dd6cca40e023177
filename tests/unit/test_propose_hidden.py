"""What `init` puts into no document."""

from __future__ import annotations

from operations.propose.views import propose_views
from tests.unit.test_propose import KEYS, NOBODY_KNOWS, SHOP, points, table, tables, views


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
