"""pydantic's errors in the words of the file: where, what was expected, what to do. pydantic's own text is not used.

It would show the value that was found, and that may be a password in the wrong place.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cdc.pipeline.document import FileNode
from cdc.pipeline.fields import PATTERNS, Part, unfit
from cdc.pipeline.problems import Problem, near, one_of, shown
from cdc.pipeline.sinks import SINKS

Path = tuple[str | int, ...]
# What a number in quotes is: of anything else only the expected form is said.
_NUMBER = r"-?\d[\d_]*(\.\d+)?"
# Keys of another tool's schema that come over into views. What is spelled alike here is something else.
_THROUGH = "many-to-many: `children` with `hide: true` and a ref below it: docs/from-pgsync.md"
_JOIN = "rows that this row points at are `refs`, rows that point at it `children`: docs/from-pgsync.md"
_OF_PGSYNC = {
    "through": _THROUGH,
    "through_tables": _THROUGH,
    "relationship": _JOIN,
    "variant": "a column's value in the place of the object is `value: column`: docs/from-pgsync.md",
    "label": "the key under `refs` or `children` is the name in the document: docs/from-pgsync.md",
}


def explain(error: ValidationError, model: type[Part], root: FileNode) -> list[Problem]:
    """What pydantic found wrong.

    Args:
        error: of ``model.model_validate``.
        model: the whole file's.
        root: the document that was validated.
    """
    details = error.errors(include_url=False, include_input=False)
    return [_explain(detail, model, root) for detail in details if not _counts_wrong(detail, details)]


def _counts_wrong(detail: ErrorDetails, details: Sequence[ErrorDetails]) -> bool:
    """Whether a list is called too short only because pydantic leaves out what is wrong in it."""
    path = detail["loc"]
    return detail["type"] == "too_short" and any(
        len(one["loc"]) > len(path) and one["loc"][: len(path)] == path for one in details
    )


def parts_at(model: type[Part], location: Path) -> tuple[Path, type[Part] | None]:
    """From pydantic's location to the path in the file and the model of the mapping that it leads into.

    Args:
        model: where the location begins.
        location: may hold the kind of a sink, which is no key of the file.
    """
    kind: Any = model
    path: list[str | int] = []
    for item in location:
        kind = _bare(kind)
        if _is_sink(kind) and item in SINKS:
            kind = SINKS[str(item)]
            continue
        path.append(item)
        if isinstance(kind, type) and issubclass(kind, Part):
            field = next((f for n, f in kind.model_fields.items() if item in (f.alias, n)), None)
            kind = field.annotation if field else None
        elif get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
            kind = get_args(kind)[1]
        else:
            kind = None
    kind = _bare(kind)
    return tuple(path), kind if isinstance(kind, type) and issubclass(kind, Part) else None


def _bare(kind: Any) -> Any:
    """Without Annotated, and without None beside it."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif get_origin(kind) in (Union, types.UnionType) and not _is_sink(kind):
            kind = next((item for item in get_args(kind) if item is not type(None)), None)
        else:
            return kind


def _is_sink(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and set(get_args(kind)) == set(SINKS.values())


def names_of(model: type[Part]) -> list[str]:
    """The keys that a part of the file takes."""
    return [field.alias or name for name, field in model.model_fields.items()]


def find(root: FileNode, path: Path) -> tuple[FileNode, int]:
    """The deepest node on a path and how much of the path leads to it."""
    node = root
    for done, item in enumerate(path):
        inside: Any = dict(enumerate(node.value)) if isinstance(node.value, list) else node.value
        if not isinstance(inside, dict) or item not in inside:
            return node, done
        node = inside[item]
    return node, len(path)


def place(root: FileNode, path: Path) -> tuple[int, int]:
    """Where a reader looks: at a scalar itself, at the key of a mapping or list, or of nothing."""
    node, done = find(root, path)
    if (node.value is None or isinstance(node.value, (dict, list))) and done:
        parent, _ = find(root, path[: done - 1])
        if isinstance(parent.value, dict):
            return parent.keys[str(path[done - 1])]
    return node.line, node.column


def _explain(detail: ErrorDetails, model: type[Part], root: FileNode) -> Problem:
    context = detail.get("ctx", {})
    location = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown_key(location, model, root)
    path, part = parts_at(model, location)
    if detail["type"] == "headwater":
        path += tuple(context["at"])
    name = dotted(path)
    if detail["type"] == "missing" or detail["type"].startswith("union_tag"):
        return _missing(detail, path, part, root)
    if location and location[-1] == "[key]":
        line, column = find(root, path[:-2])[0].keys.get(str(path[-2]), place(root, path[:-2]))
        pattern = PATTERNS.get(str(context.get("pattern")), "another name")
        return Problem(
            line, column, f"{dotted(path[:-2])}: the name {shown(str(path[-2]))} is not allowed: expected {pattern}"
        )
    node, done = find(root, path)
    line, column = place(root, path)
    what, fix = _expected(detail["type"], context, node, found=done == len(path))
    return Problem(line, column, f"{name}: {what}", fix)


def dotted(path: Path) -> str:
    """``sinks.search.url``; a part that is no plain name is not shown."""
    text = ""
    for item in path:
        if isinstance(item, int):
            text += f"[{item + 1}]"
        else:
            quoted = shown(item)
            text += ("." if text else "") + (quoted[1:-1] if quoted == f"'{item}'" else "(...)")
    return text or "the file"


def _unknown_key(location: Path, model: type[Part], root: FileNode) -> Problem:
    path, _ = parts_at(model, location)
    parent_path, part = parts_at(model, location[:-1])
    parent, _ = find(root, parent_path)
    name = str(path[-1])
    line, column = parent.keys.get(name, (parent.line, parent.column))
    where = f" in {dotted(parent_path)}" if parent_path else ""
    known = names_of(part) if part else []
    taken = parent.value if isinstance(parent.value, dict) else {}
    other = _OF_PGSYNC.get(name) if path[0] == "views" else None
    fix = other or near(name, [item for item in known if item not in taken])
    fix = fix or (f"keys here: {', '.join(known)}" if known else "")
    return Problem(line, column, f"unknown key {shown(name)}{where}", fix)


def _missing(detail: ErrorDetails, path: Path, part: type[Part] | None, root: FileNode) -> Problem:
    if detail["type"] == "union_tag_invalid":
        node, _ = find(root, (*path, "type"))
        text = node.value if isinstance(node.value, str) else ""
        return Problem(
            *place(root, (*path, "type")), f"{dotted(path)}.type: expected {one_of(list(SINKS))}", near(text, SINKS)
        )
    if detail["type"] == "union_tag_not_found":
        path += ("type",)
    parent_path, name = path[:-1], str(path[-1])
    line, column = place(root, path)
    where = f" in {dotted(parent_path)}" if parent_path else ""
    parent, _ = find(root, parent_path)
    if isinstance(parent.value, dict) and name in parent.value:
        return Problem(line, column, f"{dotted(path)} has no value", _hint(name))
    return Problem(line, column, f"missing key '{name}'{where}", _hint(name))


def _hint(name: str) -> str:
    if name == "type":
        return f"one of {', '.join(SINKS)}"
    return "write `version: 1`" if name == "version" else "`headwater template` shows every key"


_TYPES = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping (`key: value` lines)",
    "mapping_type": "a mapping (`key: value` lines)",
    "model_type": "a mapping (`key: value` lines)",
    "model_attributes_type": "a mapping (`key: value` lines)",
    "list_type": "a list (`[a, b]` or `- a` lines)",
    "tuple_type": "a list (`[a, b]` or `- a` lines)",
    "finite_number": "a finite number",
}


def _expected(kind: str, context: Mapping[str, Any], node: FileNode, *, found: bool) -> tuple[str, str]:
    """(what was expected and found, the way out)."""
    if kind == "headwater":
        return str(context["what"]), ""
    if kind in _TYPES:
        got = f", got {node.kind()}" if found and not node.variable else ""
        got = ", got a variable that holds something else" if node.variable else got
        return f"expected {_TYPES[kind]}{got}", _quotes(_TYPES[kind], node)
    if kind == "literal_error":
        allowed = str(context.get("expected", ""))
        text = node.value if isinstance(node.value, str) else ""
        return f"expected {allowed}", near(text, allowed.replace("'", "").replace(" or ", ", ").split(", "))
    if kind == "string_pattern_mismatch":
        return unfit(str(context.get("pattern")), node.value), ""
    template = _BOUNDS.get(kind, "not what is expected here ({kind})")
    return template.format_map({"kind": kind, **context}), ""


_BOUNDS = {
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}",
    "less_than": "expected less than {lt}",
    "string_too_short": "expected text, got none",
    "string_too_long": "expected at most {max_length} characters",
    "too_short": "expected at least {min_length} of them",
    "too_long": "expected at most {max_length} of them",
}


def _quotes(expected: str, node: FileNode) -> str:
    if expected == "text" and isinstance(node.value, (bool, int, float)):
        return "put it in quotes"
    if (
        expected != "text"
        and "number" in expected
        and node.quoted
        and re.fullmatch(_NUMBER, str(node.value)) is not None
    ):
        return "take the quotes away"
    return ""
