"""Examples of docs/json-output.md, read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cdc.pipeline import Pipeline, load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "json-output.md").read_text(encoding="utf-8")


def example(verb: str) -> dict[str, Any]:
    """The example in a verb's section."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(f"{verb}\n")]
    [block] = re.findall(r"^```json\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    shown: dict[str, Any] = json.loads(block)
    return shown


def flights(folder: Path) -> Pipeline:
    """The example's pipeline, with servers that are not there."""
    secrets = {"HEADWATER_SOURCE_PASSWORD": "x", "HEADWATER_SETUP_PASSWORD": "x", "HEADWATER_HOME": str(folder)}
    nowhere = {"HEADWATER_POSTGRES_PORT": "1", "HEADWATER_CONNECT": "http://127.0.0.1:1"}
    return load(ROOT / "examples/flights/pipeline.yaml", secrets | nowhere)
