"""Where a webhook's note lies."""

from __future__ import annotations

import re
from pathlib import Path

from cdc.pipeline.fields import NAME
from operations.push.health import note_path
from operations.state.folder import pipeline_folder
from tests.support.connector_cases import pipeline


def test_no_sink_has_its_folder_where_webhooks_notes_lie(tmp_path: Path) -> None:
    """A webhook called paused was the pause of a sink called push."""
    made = pipeline()
    made = made.model_copy(update={"engine": made.engine.model_copy(update={"state_dir": str(tmp_path)})})
    folder = note_path(made, "paused").parent
    assert folder.parent == pipeline_folder(made) and re.fullmatch(NAME, folder.name) is None
