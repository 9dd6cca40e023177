"""The pipeline file's JSON Schema (draft 2020-12), for completion and checks in editors."""

from __future__ import annotations

from typing import Any

from cdc.pipeline.models import Pipeline

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
    "description": "An environment variable: ${NAME} or ${NAME:-default}.",
}
# What stays outside of the choice between a value and a variable, so that an editor shows it for both.
_ANNOTATIONS = ("description", "default", "examples", "title")
_TEXT_LIMITS = ("pattern", "enum", "minLength", "format")


def json_schema() -> dict[str, Any]:
    """The schema; wherever a value is checked, a variable may stand instead.

    What needs more than one key (a sink's view exists, targets differ) only ``load`` checks.
    """
    raw = Pipeline.model_json_schema(by_alias=True)
    definitions = {name: _widened(part) for name, part in raw.pop("$defs").items()}
    schema: dict[str, Any] = _widened(raw)
    return {"$schema": DIALECT, **schema, "$defs": {**definitions, "Variable": _VARIABLE}}


def _widened(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_widened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    said: dict[str, Any] = schema.get("x-headwater", {})
    for name, value in schema.items():
        if name == "properties":
            required = schema.get("required", ())
            out[name] = {k: _widened(v) if k in required else _or_nothing(_widened(v)) for k, v in value.items()}
        elif name == "patternProperties":
            # pydantic leaves names that match no pattern alone; `load` refuses them.
            out[name] = {key: _widened(item) for key, item in value.items()}
            out["additionalProperties"] = False
        elif name in ("items", "anyOf", "oneOf", "additionalProperties"):
            out[name] = _widened(value)
        elif name not in ("x-headwater", "title", "discriminator", "writeOnly"):
            out[name] = value
    if said.get("unit"):
        out["description"] = f"{out.get('description', '')} Unit: {said['unit']}."
    if said.get("shown_default"):
        out.pop("default", None)
    if said.get("example") is not None:
        out["examples"] = [said["example"]]
    return _or_variable(out)


def _or_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    """`policy:` with all of it commented out is null in YAML, and means the defaults."""
    core = {name: value for name, value in schema.items() if name not in _ANNOTATIONS}
    members = core["anyOf"] if list(core) == ["anyOf"] else [core]
    if {"type": "null"} not in members:
        members = [*members, {"type": "null"}]
    return {**{name: schema[name] for name in _ANNOTATIONS if name in schema}, "anyOf": members}


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind or ())
    number = bool(kinds & {"integer", "number", "boolean"}) and "string" not in kinds
    limited = "string" in kinds and any(limit in schema for limit in _TEXT_LIMITS)
    if "const" in schema or not (number or limited):
        return schema
    annotations = {name: schema.pop(name) for name in _ANNOTATIONS if name in schema}
    return {**annotations, "anyOf": [schema, {"$ref": "#/$defs/Variable"}]}
