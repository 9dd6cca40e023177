"""What `run` and `serve` say, for tests that look for a sentence in it."""

from __future__ import annotations

import json


def sentences(text: str) -> str:
    """Log lines as a person would read them; what is no JSON stays as it is."""
    return "\n".join(_sentence(line) for line in text.splitlines())


def _sentence(line: str) -> str:
    try:
        told = json.loads(line)
    except ValueError:  # half of a line, or another process's words
        return line
    return f"{told['event']}\n{told.get('exception', '')}".rstrip() if isinstance(told, dict) else line
