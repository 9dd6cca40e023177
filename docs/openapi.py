"""Writes docs/openapi.json: what the HTTP API answers. ``.venv/bin/python docs/openapi.py``; ``--check`` compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from console.http.app import make_app
from console.http.guard import Access
from console.http.served import Pipelines

PAGE = Path(__file__).with_name("openapi.json")


def render() -> str:
    """The document."""
    return json.dumps(make_app(Pipelines(()), Access({})).openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == render() else f"{PAGE.name} is stale: run docs/openapi.py")
    PAGE.write_text(render(), encoding="utf-8")
