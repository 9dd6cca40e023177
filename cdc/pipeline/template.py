"""The annotated template: every key of the pipeline file with its meaning, unit and default, ready to be changed."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from cdc.pipeline.keys import Key, Section, sections

WIDTH = 110
VIEW = "customer"
SINK_NAMES = {"elasticsearch": "search", "redis": "cache", "iceberg": "warehouse"}

_HEAD = """\
# A pipeline of Headwater. Keys that are set here are needed or usual; a key that is commented out (#key: value) shows
# its default or an example. ${NAME} takes an environment variable, ${NAME:-default} has a default for it, $${ is a
# plain ${. Keep passwords out of this file: use variables. `headwater schema` prints a JSON Schema for editors.
"""
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@-]*|\$\{[A-Za-z_][A-Za-z0-9_]*(:-[A-Za-z0-9_./:-]*)?\}")
_INNER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# Plain words that YAML (or an older reader of it) takes for something else than text.
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def template() -> str:
    """The template's text: a valid pipeline file once its variables are set."""
    lines = [_HEAD]
    for section in sections():
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> Iterator[str]:
    indent = "  " * len(section.path)
    if section.path[:1] in (("views",), ("sinks",)):
        if section.kind in ("", "elasticsearch"):
            yield f"{section.path[0]}:"
        name = SINK_NAMES.get(section.kind, VIEW)
        yield f"  # {section.description}"
        yield f"  {name}:"
    elif section.path:
        yield f"# {section.description}"
        yield f"{section.path[0]}:"
    for key in section.keys:
        yield from _key(key, indent)
    yield ""


def _key(key: Key, indent: str) -> Iterator[str]:
    facts = [
        f"Unit: {key.unit}." if key.unit else "",
        "" if key.default in ("", "none") else f"Default: {key.default}.",
    ]
    if key.name != "type":
        text = " ".join([key.description, *filter(None, facts)])
        yield from textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    line = f"{key.name}: {yaml_value(key.example)}"
    if key.alternative:
        yield f"{indent}# or: {line}"
    else:
        yield f"{indent}{'' if key.active else '#'}{line}"


def yaml_value(value: Any, *, inside: bool = False) -> str:
    """A value as YAML on one line.

    Args:
        value: plain data.
        inside: whether it stands inside of [ ] or { }, where fewer texts need no quotes.
    """
    if isinstance(value, Mapping):
        items = (f"{yaml_value(k, inside=True)}: {yaml_value(v, inside=True)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(yaml_value(item, inside=True) for item in value) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and (_INNER if inside else _PLAIN).fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
