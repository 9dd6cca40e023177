"""Files of one view and one cache, or two, whose servers nobody has."""

from __future__ import annotations

from pathlib import Path

FILE = """\
version: 1
name: p
source: {{host: 127.0.0.1, port: 1, database: d, user: u, password: x, tables: [public.t]}}
kafka: {{bootstrap: "127.0.0.1:1"}}
connect: {{url: "http://127.0.0.1:1"}}
views: {{v: {{root: t}}}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1:1", view: v}}}}
engine: {{state_dir: {folder}}}
"""
# With a second cache of the same view.
TWO = FILE.replace(
    """sinks: {{cache: {{type: redis, url: "redis://127.0.0.1:1", view: v}}}}
""",
    """sinks:
  cache: {{type: redis, url: "redis://127.0.0.1:1", view: v}}
  other: {{type: redis, url: "redis://127.0.0.1:1", view: v, key_prefix: "o:"}}
""",
)


def written(folder: Path, text: str = FILE) -> Path:
    """The file in a folder, with its state folder beside it."""
    path = folder / "pipeline.yaml"
    path.write_text(text.format(folder=folder / "state"))
    return path
