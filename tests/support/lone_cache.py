"""Files of one view and one cache, or two, whose servers nobody has."""

from __future__ import annotations

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
