"""A warehouse that a changed file has elsewhere, or under another token: Spark's session keeps the catalogue it has."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import ClusterError
from operations.edits import file_watch
from operations.edits.changes import changes_between
from operations.state.accepted import file_status
from tests.unit.operations.test_file_edits import LAKE, Files, Run, files, run

__all__ = ["files", "run"]

REST = LAKE.replace("catalog_uri: /c.db", 'catalog_uri: "http://c:1", token: one')


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (REST, REST.replace("token: one", "token: two"), ["token"]),
        (REST, REST.replace("token: one", 'credential: "a:b", scope: s'), ["token", "credential", "scope"]),
        (LAKE, LAKE.replace("/c.db", "/other.db").replace("/w,", "/v,"), ["catalog_uri", "warehouse"]),
        (LAKE, LAKE.replace("}", ", s3_region: r}"), ["s3_region"]),
        (LAKE, LAKE.replace("}", ", trigger_seconds: 9}"), []),
        (LAKE, LAKE.replace("namespace: n", "namespace: m"), []),
    ],
)
def test_another_way_to_a_warehouse_asks_for_a_new_process(files: Files, old: str, new: str, keys: list[str]) -> None:
    """`plan` said that it is opened anew; Spark wrote into the old one, and `verify` read the new one."""
    changes = changes_between(files.load(more=old), files.load(more=new))
    assert changes.restart == tuple(f"sinks.lake.{key}" for key in keys)
    assert changes_between(files.load(more=old), files.load(more=new), ["cache"]).restart == ()
    said = changes.lines()
    assert "two" not in str(said) and (not keys or "must be started again for sinks.lake." in said[0])


def test_a_warehouse_that_comes_back_with_another_catalogue_is_not_taken_up(files: Files, run: Run) -> None:
    """Nothing that the two files show: what the session was told of the first one is its own."""
    lake = LAKE.replace("/c.db", f"{files.folder}/c.db").replace("/w,", f"{files.folder}/w,")  # folders are made
    assert "taken up" in run.apply(files.text(more=lake))[0]
    assert run.conf["spark.sql.catalog.hw_lake.uri"].endswith("/c.db")
    assert "taken up" in run.apply(files.text())[0]
    [refused] = run.apply(files.text(more=lake.replace("/c.db", "/other.db")))
    assert (
        "not taken up" in refused and "sinks.lake.catalog_uri changed" in refused and "start `headwater run`" in refused
    )
    assert len(run.adopted) == 2 and run.conf["spark.sql.catalog.hw_lake.uri"].endswith("/c.db")
    assert "sinks.lake.catalog_uri" in file_status(run.engine.pipeline)["refused"]["reason"]
    assert "taken up" in run.apply(files.text(more=lake))[0], "as it was told of it"


def test_a_warehouse_of_a_file_that_was_refused_may_be_corrected(
    files: Files, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors did not see its folder; with another one the file was refused as well, for a catalogue that nobody had
    opened."""

    def unseen(*_: Any) -> None:
        raise ClusterError("no executor sees the folder")

    lake = LAKE.replace("/c.db", f"{files.folder}/c.db").replace("/w,", f"{files.folder}/w,")
    monkeypatch.setattr(file_watch, "check_machines", unseen)
    assert "no executor sees the folder" in run.apply(files.text(more=lake))[0]
    monkeypatch.setattr(file_watch, "check_machines", lambda *_: None)
    corrected = files.text(more=lake.replace(f"{files.folder}/w,", f"{files.folder}/v,"))
    assert run.apply(corrected)[0].startswith("the file that was applied is taken up")
    run.apply(files.text())
    assert "sinks.lake.warehouse changed" in run.apply(files.text(more=lake))[0], "of what was taken up it is known"
