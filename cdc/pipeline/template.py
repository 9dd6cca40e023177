"""The annotated template: every key of the pipeline file with its meaning, unit and default, ready to be changed."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cdc.pipeline.file_keys import Key, Section, sections
from cdc.pipeline.views import JOINS, STATEFUL

WIDTH = 110
VIEW = "customer"
# A second view, all of it commented out, shows joins.
JOINED_VIEW = "customer_card"
JOIN_NAMES = {"refs": "referrer", "children": "orders", "aggregates": "spent"}
SINK_NAMES = {"elasticsearch": "search", "redis": "cache", "iceberg": "warehouse"}
HOOK = "orders"
MATCHES = "order_alerts"
# Parts that are shown where the part around them names them.
INNER = (
    ("source", "registry"),
    ("source", "outbox"),
    ("views", "<name>", "fold"),
    ("views", "<name>", "window"),
    ("views", "<name>", "match"),
    ("views", "<name>", "match", "first"),
    ("views", "<name>", "match", "then"),
    ("sinks", "<name>", "changes"),
    ("queries", "<name>", "push", "<name>"),
    ("queries", "<name>", "saved"),
    ("policy", "dead_letters"),
    ("policy", "alert"),
)
# A kind that takes the keys of another one, and is shown in a few words below that.
ALIKE = {"opensearch": "elasticsearch"}

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
    every = list(sections())
    for section in every:
        if section.path in INNER:
            continue  # stands in the part around it
        if section.kind in ALIKE:
            lines[-1:] = _alike(section, next(other for other in every if other.kind == ALIKE[section.kind]))
        elif section.path[0:1] == ("push",):
            lines += _push(section)
        elif section.path[:1] == ("queries",):
            lines += _queries(section, [other for other in every if other.path[:2] == section.path])
        elif section.path[:1] != ("views",):
            lines += _section(section, every)
        elif len(section.path) == 2:
            lines += _views(section, [other for other in every if other.path[:2] == section.path and other != section])
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, every: list[Section]) -> Iterator[str]:
    indent = "  " * len(section.path)
    if section.kind:
        if section.kind == "elasticsearch":
            yield f"{section.path[0]}:"
        yield f"  # {section.description}"
        yield f"  {SINK_NAMES[section.kind]}:"
    elif section.path:
        yield f"# {section.description}"
        yield f"{section.path[0]}:"
    for key in section.keys:
        below = next((other for other in every if other.path == (*section.path, key.name)), None)
        if below is None:
            yield from _key(key, indent)
            continue
        yield from _comment(key.description, indent)
        # A part that fits no other tables than those of its own example stays out when all else is taken in.
        yield f"{indent}# or: {key.name}:" if key.alternative else f"{indent}#{key.name}:"
        for inner in below.keys:
            yield from _key(replace(inner, alternative=key.alternative), indent + "  ", active=False)
    yield ""


def _push(section: Section) -> Iterator[str]:
    """None of them is set: they ask for `changes`, which the template's sink has not."""
    yield from _comment(section.description, "")
    yield "push:"
    yield f"  # or: {HOOK}:"
    for key in section.keys:
        yield from _key(replace(key, alternative=True), "    ")
    yield ""


def _alike(section: Section, other: Section) -> Iterator[str]:
    """A kind of sink that is as another one but for a few keys."""
    yield from _comment(f"Or `type: {section.kind}`: {section.description} All keys as above, and:", "    ")
    known = {key.name for key in other.keys}
    for key in section.keys:
        if key.name not in known:
            yield from _key(key, "    ", active=False)
    yield ""


def _views(section: Section, nested: list[Section]) -> Iterator[str]:
    """A view of one table, and one with a row, rows and a value of other tables."""
    yield "views:"
    yield from _comment(section.description, "  ")
    yield f"  {VIEW}:"
    for key in section.keys:
        if key.name in STATEFUL:
            # They take the place of columns, fields and condition.
            yield from _comment(key.description, "    ")
            yield f"    # or: {key.name}:"
            yield from _stateful(key.name, nested)
        elif key.name not in JOINS:
            yield from _key(key, "    ")
    yield from _comment("A view with joins; it takes all keys of the one above too, and needs `row_store`.", "  ")
    yield f"  #{JOINED_VIEW}:"
    yield f"    #root: {VIEW}s"
    for below in (one for one in nested if one.path[2] in JOIN_NAMES):
        join = below.path[2]
        yield from _comment(next(key.description for key in section.keys if key.name == join), "    ")
        yield f"    #{join}:"
        yield from _comment(below.description, "      ")
        yield f"      #{JOIN_NAMES[join]}:"
        for key in below.keys:
            yield from _key(key, " " * 8, active=False)
    yield ""


def _stateful(name: str, nested: list[Section]) -> Iterator[str]:
    """The keys of a fold, a window or a match; what is a mapping of its own below them is shown once."""
    keys = {one.path[3]: one.keys for one in nested if one.path[2:3] == (name,) and len(one.path) == 4}
    for inner in next(one for one in nested if one.path[2:] == (name,)).keys:
        if inner.name != next(iter(keys), None):
            yield from _key(replace(inner, alternative=True), "      ")
            continue
        yield from _comment(inner.description, "      ")
        yield f"      # or: {inner.name}:"
        for below in keys[inner.name]:
            yield from _key(replace(below, alternative=True), "        ")


def _queries(section: Section, nested: list[Section]) -> Iterator[str]:
    """They need a sink that is not there unless its own alternative is taken: so they are one too."""
    keys = {one.path[2]: one.keys for one in nested if len(one.path) > 2}
    yield from _comment(section.description, "")
    yield "# or: queries:"
    yield f"  # or: {VIEW}:"
    for key in section.keys:
        if key.name not in keys:
            yield from _key(replace(key, alternative=True), "    ")
            continue
        yield from _comment(key.description, "    ")
        yield f"    # or: {key.name}:"
        indent = "      "
        if key.name == "push":
            yield f"{indent}# or: {MATCHES}:"
            indent += "  "
        for inner in keys[key.name]:
            yield from _key(replace(inner, alternative=True), indent)
    yield ""


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _key(key: Key, indent: str, *, active: bool = True) -> Iterator[str]:
    facts = [
        f"Unit: {key.unit}." if key.unit else "",
        "" if key.default in ("", "none") else f"Default: {key.default}.",
    ]
    if key.name != "type":
        yield from _comment(" ".join([key.description, *filter(None, facts)]), indent)
    line = f"{key.name}: {yaml_value(key.example)}"
    if key.alternative:
        yield f"{indent}# or: {line}"
    else:
        yield f"{indent}{'' if key.active and active else '#'}{line}"


def yaml_value(value: Any, *, inside: bool = False) -> str:
    """A value as YAML on one line.

    Args:
        value: plain data.
        inside: whether it stands inside of [ ] or { }, where fewer texts need no quotes.
    """
    if isinstance(value, Mapping):
        # `on` is text in YAML 1.2, and as a key it stands without quotes wherever it stands in a file.
        names = {k: k if k == "on" else yaml_value(k, inside=True) for k in value}
        items = (f"{names[k]}: {yaml_value(v, inside=True)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(yaml_value(item, inside=True) for item in value) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and (_INNER if inside else _PLAIN).fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
