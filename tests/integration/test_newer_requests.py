"""A table that is asked for again while an earlier reading of it ends, and a command that is killed at that end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc.pipeline import Pipeline
from connectors.apply import apply, plan_pipeline
from connectors.captured import changed
from connectors.captured.captured import read_captured
from connectors.resnapshot import Wish, read_anew, resnapshot
from connectors.servers import Servers, open_servers
from connectors.snapshots import snapshot
from connectors.snapshots.missed_deletes import sweep_missed
from connectors.snapshots.snapshot import wait_snapshot
from tests.integration.test_changed_tables import equal, made
from tests.support.source import SourceDatabase, eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled]


def unseen(source: SourceDatabase, pipeline: Pipeline, statement: str) -> None:
    """What is done while the publication does not have the table reaches no topic."""
    publication = f'"{pipeline.source.publication}"'
    source.execute(
        f"ALTER PUBLICATION {publication} DROP TABLE t", statement, f"ALTER PUBLICATION {publication} ADD TABLE t"
    )


def as_run(pipeline: Pipeline) -> None:
    """What a living `run` asks for when a partition was detached."""
    read_anew(pipeline, {"public.t": ""}, ["public.t"])


@pytest.mark.parametrize("ask", [apply, as_run], ids=["with a gap", "by run"])
def test_a_sweep_that_ends_late_leaves_the_newer_request_open(
    source: SourceDatabase, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Pipeline], Any]
) -> None:
    pipeline = made(source, "t")
    sweeps: list[dict[str, int]] = []

    def late(servers: Servers, *more: Any) -> dict[str, int]:
        found = sweep_missed(servers, *more)
        if not sweeps:
            unseen(source, pipeline, "DELETE FROM t WHERE id = 2")
            ask(pipeline)
        sweeps.append(found)
        return found

    monkeypatch.setattr(snapshot, "sweep_missed", late)
    resnapshot(pipeline, Wish(["public.t"]))
    done = wait_snapshot(pipeline, seconds=120)
    assert done.done and done.tables[0].swept == 1 and sweeps == [{"public.t": 0}, {"public.t": 1}]
    assert eventually(lambda: equal(source, pipeline, "t"))
    with open_servers(pipeline) as servers:
        entry = read_captured(servers.setup, servers.names)["public.t"]
    assert (entry.state, entry.sweep, entry.gap) == ("done", False, None)


def test_a_command_that_is_killed_as_it_ends_leaves_no_gap_that_nobody_mends(
    source: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = made(source, "t")
    unseen(source, pipeline, "DELETE FROM t WHERE id = 2")
    apply(pipeline)

    def killed(*_: Any) -> list[Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(changed, "_close_gaps", killed)
        with pytest.raises(KeyboardInterrupt):
            wait_snapshot(pipeline, seconds=90)
    with open_servers(pipeline) as servers:
        entry = read_captured(servers.setup, servers.names)["public.t"]
        assert entry.state == "requested" and entry.gap is not None
        assert apply(pipeline).actions == [] and wait_snapshot(pipeline, seconds=90).done
        assert read_captured(servers.setup, servers.names)["public.t"].gap is None
        # As an older version has left it, which noted the one and then the other.
        servers.setup.execute(
            f'UPDATE headwater."{servers.names.captured}" SET gap = %s::jsonb',
            ['{"reasons": ["was dropped and made again"], "key": false, "mending": true}'],
        )
        assert [action.name for action in plan_pipeline(pipeline) if action.kind == "snapshot"] == ["public.t"] * 2
        apply(pipeline)
        assert wait_snapshot(pipeline, seconds=90).done
        assert read_captured(servers.setup, servers.names)["public.t"].gap is None
    assert equal(source, pipeline, "t")
