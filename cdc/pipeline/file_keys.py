"""Every key of the pipeline file with all that is said about it, read from the models for page and template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from cdc.pipeline.fields import PATTERNS, Part
from cdc.pipeline.joins import Aggregate, Child, Ref
from cdc.pipeline.models import Alert, DeadLetters, Engine, Pipeline, Policy
from cdc.pipeline.push import Webhook
from cdc.pipeline.queries import MatchPush, Queries, Saved
from cdc.pipeline.rowstore import RowStore
from cdc.pipeline.sinks import SINKS, Changes
from cdc.pipeline.source import Connect, Kafka, Outbox, Registry, Source
from cdc.pipeline.timing import Event, Match, Window
from cdc.pipeline.views import Fold, View


@dataclass(frozen=True)
class Key:
    """One key.

    Attributes:
        name: as it stands in the file.
        description: what it is for.
        kind: what values it takes, in words.
        unit: of a number, or "".
        default: in words; "" for a required key.
        required: whether it has no default.
        example: what the template shows.
        active: whether the template sets it.
        alternative: whether it excludes another key that the template sets.
        content: whether changing it asks for a rebuild of the sink.
    """

    name: str
    description: str
    kind: str
    unit: str
    default: str
    required: bool
    example: Any
    active: bool
    alternative: bool
    content: bool


@dataclass(frozen=True)
class Section:
    """A mapping of the file.

    Attributes:
        path: its keys from the root; ``<name>`` stands for a name that the user chooses.
        kind: of a sink, else "".
        description: what it is.
        keys: in order.
    """

    path: tuple[str, ...]
    kind: str
    description: str
    keys: tuple[Key, ...]


def sections() -> Iterator[Section]:
    """Every mapping of the file, in the order in which the file has them."""
    yield Section((), "", _doc(Pipeline), _keys(Pipeline, frozenset(("version", "name"))))
    yield Section(("source",), "", _doc(Source), _keys(Source))
    yield Section(("source", "registry"), "", _doc(Registry), _keys(Registry))
    yield Section(("source", "outbox"), "", _doc(Outbox), _keys(Outbox))
    for name, part in (("kafka", Kafka), ("connect", Connect)):
        yield Section((name,), "", _doc(part), _keys(part))
    yield Section(("views", "<name>"), "", _doc(View), _keys(View))
    for name, stateful in (("fold", Fold), ("window", Window), ("match", Match)):
        yield Section(("views", "<name>", name), "", _doc(stateful), _keys(stateful))
    for name in ("first", "then"):
        yield Section(("views", "<name>", "match", name), "", _doc(Event), _keys(Event))
    for name, nested in (("refs", Ref), ("children", Child), ("aggregates", Aggregate)):
        yield Section(("views", "<name>", name, "<name>"), "", _doc(nested), _keys(nested))
    yield Section(("row_store",), "", _doc(RowStore), _keys(RowStore))
    for kind, sink in SINKS.items():
        keys = sorted(_keys(sink), key=lambda key: key.name != "type")
        yield Section(("sinks", "<name>"), kind, _doc(sink), tuple(keys))
        if kind == "redis":
            yield Section(("sinks", "<name>", "changes"), "", _doc(Changes), _keys(Changes))
    yield Section(("push", "<name>"), "", _doc(Webhook), _keys(Webhook))
    yield Section(("queries", "<name>"), "", _doc(Queries), _keys(Queries))
    yield Section(("queries", "<name>", "push", "<name>"), "", _doc(MatchPush), _keys(MatchPush))
    yield Section(("queries", "<name>", "saved"), "", _doc(Saved), _keys(Saved))
    yield Section(("policy",), "", _doc(Policy), _keys(Policy))
    yield Section(("policy", "dead_letters"), "", _doc(DeadLetters), _keys(DeadLetters))
    yield Section(("policy", "alert"), "", _doc(Alert), _keys(Alert))
    yield Section(("engine",), "", _doc(Engine), _keys(Engine))


def _doc(part: type[Part]) -> str:
    return (part.__doc__ or "").strip().splitlines()[0]


def _keys(part: type[Part], only: frozenset[str] | None = None) -> tuple[Key, ...]:
    schema = part.model_json_schema()
    # A part that may hold parts of its own kind stands among the definitions.
    properties = schema.get("properties") or schema["$defs"][part.__name__]["properties"]
    fields = part.model_fields.items()
    return tuple(_key(name, field, properties) for name, field in fields if only is None or name in only)


def _key(name: str, field: FieldInfo, properties: dict[str, Any]) -> Key:
    name = field.alias or name
    extra = field.json_schema_extra
    said: dict[str, Any] = dict(extra["x-headwater"]) if isinstance(extra, dict) else {}  # type: ignore[arg-type]
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    literal = properties[name].get("const")
    return Key(
        name=name,
        description=str(field.description),
        kind=kind_of(properties[name]),
        unit=said.get("unit", ""),
        default="" if field.is_required() else said.get("shown_default") or _words(default),
        required=field.is_required(),
        example=said.get("example", literal if literal is not None else _plain(default)),
        active=field.is_required() or bool(said.get("active")),
        alternative=bool(said.get("alternative")),
        content=bool(said.get("content")),
    )


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _words(value: Any) -> str:
    value = _plain(value)
    if value in (None, "", (), {}):
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


_KINDS = {"array": "list", "object": "mapping", "boolean": "true or false"}


def kind_of(schema: dict[str, Any]) -> str:  # noqa: PLR0911 - one line a kind
    """What a property of the JSON Schema takes, in words."""
    members = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
    if members:
        return " or ".join(dict.fromkeys(kind_of(item) for item in members))
    if "enum" in schema:
        return " or ".join(f"`{item}`" for item in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = "object" if "$ref" in schema else schema.get("type")
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _range(schema)
    if kind in _KINDS:
        return _KINDS[kind]
    if schema.get("format") == "password":
        return "secret text"
    return PATTERNS.get(schema.get("pattern", ""), "text")


def _range(schema: dict[str, Any]) -> str:
    low = f"{schema['minimum']:g}" if "minimum" in schema else ""
    above = f"more than {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else low
    high = schema.get("maximum")
    if high is None:
        return f", {above}" if above else ""
    shown = f"{high:,}".replace(",", " ") if isinstance(high, int) else f"{high:g}"
    return f", {above} to {shown}"
