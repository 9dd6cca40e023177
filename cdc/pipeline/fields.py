"""What the keys of the pipeline file are made of: the base of every part, and types for values.

A key's description, unit, default and bounds stand once, in its ``entry(...)``; docs/pipeline-file.md, the template,
the JSON Schema and the error messages are made from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticUndefined

from cdc.masking import looks_secret, masked
from cdc.pipeline.environment import VariableText
from cdc.sizes import SIZE, parse_size

# Every pattern of a text, with the words that a message uses for it. Also part of the JSON Schema.
PIPELINE_NAME = r"^[a-z][a-z0-9_]{0,39}$"
NAME = r"^[a-z][a-z0-9_]{0,62}$"
SLOT = r"^[a-z0-9_]{1,63}$"
TABLE = r"^[A-Za-z0-9_-]{1,63}\.([A-Za-z0-9_-]{1,63}|\*)$"
ONE_TABLE = r"^[A-Za-z0-9_-]{1,63}\.[A-Za-z0-9_-]{1,63}$"
TABLE_NAME = r"^([A-Za-z0-9_-]{1,63}\.)?[A-Za-z0-9_-]{1,63}$"
TOPIC = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
QUERY = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
BROKERS = r"^[^\s,/]+:[0-9]{1,5}(\s*,\s*[^\s,/]+:[0-9]{1,5})*$"
_PORT = r":(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_NAMED = r"[^\s,/:@?\[\]]+"
_HOST = rf"(\[[0-9a-fA-F:.]+\]|{_NAMED})"
HTTP = rf"^https?://(\S*@)?{_HOST}({_PORT})?(/\S*)?$"
# A database that is no number would silently be database 0.
REDIS = rf"^(rediss?://(\S*@)?{_HOST}({_PORT})?(/[0-9]{{0,4}})?(\?\S*)?|unix://\S+)$"
INDEX = r"^[a-z0-9][a-z0-9._-]{0,199}$"
# With a table's name (63) behind it and a generation's longest suffix it is below the server's 255 bytes.
INDEX_PREFIX = r"^([a-z0-9][a-z0-9._-]{0,99})?$"
# No braces: in Redis Cluster they choose the slot, and a value must share one with its version.
PREFIX = r"^[\x21-\x7a\x7c\x7e]{0,100}$"
# A function of a module of the user's.
SIGNER = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
NAMESPACE = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
MEMORY = r"^[1-9][0-9]{0,5}[kmgKMG]$"
# No address in brackets: Spark's own machines find each other over IPv4.
MASTER = rf"^(local(\[(\*|[1-9][0-9]*)(,[0-9]+)?\])?|spark://{_NAMED}{_PORT}(,{_NAMED}{_PORT})*|yarn|k8s://\S+)$"
# Of event times; no months, which have no length.
DURATION = r"^[1-9][0-9]{0,5} (second|minute|hour|day|week)s?$"
_STRANGE = re.compile(r"[^A-Za-z0-9_.*-]")
PATTERNS = {
    PIPELINE_NAME: "1 to 40 lower-case letters, digits and _, beginning with a letter",
    NAME: "1 to 63 lower-case letters, digits and _, beginning with a letter",
    SLOT: "1 to 63 lower-case letters, digits and _",
    TABLE: "schema.table or schema.* (letters a to z and A to Z, digits, _ and -; without quotes)",
    ONE_TABLE: "schema.table (letters a to z and A to Z, digits, _ and -; without quotes)",
    TABLE_NAME: "table or schema.table (letters a to z and A to Z, digits, _ and -; without quotes)",
    TOPIC: "1 to 100 letters, digits, '.', '_' and '-'",
    QUERY: "1 to 64 letters, digits, '_', '.' and '-', beginning with a letter or digit",
    BROKERS: "host:port, or several with commas between them",
    HTTP: "http://host:port or https://host:port",
    REDIS: "redis://host:port/db, rediss://host:port/db or unix://path",
    INDEX: "1 to 200 lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit",
    INDEX_PREFIX: "at most 100 lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit",
    PREFIX: "at most 100 printable characters without spaces and braces",
    SIGNER: "module:function, like our_aws:signer",
    NAMESPACE: "1 to 63 letters, digits and _, not beginning with a digit",
    MEMORY: "a number and k, m or g, like 1g",
    MASTER: "local, local[4], local[*], spark://host:port, yarn or k8s://...",
    DURATION: "a whole number and second, minute, hour, day or week, like 10 minutes",
    SIZE: "a number and KiB, MiB, GiB or TiB, like 10GiB",
}

# Bound every text: nothing in this file is longer, but for SQL expressions and certificates.
MAX_LENGTH = 16 * 1024
MAX_ITEMS = 2_000


class Part(BaseModel):
    """A part of the file: unknown keys are errors, types are exact, values do not change, secrets do not print."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        str_max_length=MAX_LENGTH,
        serialize_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, raw: Any) -> Any:
        """A key without a value, or whose variable is empty, is as good as left out."""
        if isinstance(raw, Mapping):
            return {k: v for k, v in raw.items() if v is not None and not (isinstance(v, VariableText) and v == "")}
        return raw

    @model_serializer(mode="wrap")
    def _mask_json(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        """In JSON nothing secret remains; ``model_dump()`` in Python mode keeps all, secrets as ``SecretStr``."""
        dumped = handler(self)
        return masked(dumped) if info.mode == "json" else dumped

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, value if isinstance(value, (BaseModel, SecretStr)) else _masked_parts(value, name or "")


def _masked_parts(value: Any, key: str) -> Any:
    """As ``masked``, but models keep their own representation."""
    if isinstance(value, Mapping) and any(isinstance(item, BaseModel) for item in value.values()):
        return value
    return masked(value, key)


def entry(
    default: Any = PydanticUndefined,
    description: str = "",
    *,
    unit: str = "",
    example: Any = None,
    shown_default: str = "",
    active: bool = False,
    alternative: bool = False,
    content: bool = False,
    **constraints: Any,
) -> Any:
    """A key of the file.

    Args:
        default: its value when it is left out; nothing for a required key.
        description: one or two sentences; what happens when it is wrong, if that is not obvious.
        unit: of the number: seconds, bytes, rows ...
        example: what the template shows; else the default.
        shown_default: the default in words, when it is computed.
        active: whether the template sets it although it has a default.
        alternative: it excludes another key of the template, which shows it only as a comment.
        content: it decides what the sink holds: part of the spec hash.
        constraints: of pydantic's ``Field``: ge, le, pattern, alias ...
    """
    extra: dict[str, Any] = {
        "unit": unit,
        "example": example,
        "shown_default": shown_default,
        "active": active,
        "alternative": alternative,
        "content": content,
    }
    if isinstance(default, (dict, list)):
        constraints["default_factory"] = type(default)
    elif default is not PydanticUndefined:
        constraints["default"] = default
    # pydantic puts json_schema_extra into the schema as it is: only what says something, under a name of our own.
    said = {name: value for name, value in extra.items() if value not in (None, "", False)}
    return Field(description=description, json_schema_extra={"x-headwater": said}, **constraints)


def _from_variable(kind: Any) -> BeforeValidator:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def convert(value: Any) -> Any:
        if not isinstance(value, VariableText):
            return value
        try:
            return adapter.validate_python(str(value))
        except ValidationError:
            return value  # the strict validation after this one says what was expected

    return BeforeValidator(convert)


Whole = Annotated[int, _from_variable(int)]
Number = Annotated[float, _from_variable(float)]
# Rows of nested children: a document is one message and one request.
RowLimit = Annotated[int, Field(ge=1, le=10_000), _from_variable(int)]
MebiBytes = Annotated[int, Field(ge=1, le=1 << 30), _from_variable(int)]
Flag = Annotated[bool, _from_variable(bool)]
Text = Annotated[str, Field(min_length=1)]
Table = Annotated[str, Field(pattern=TABLE)]
TableName = Annotated[str, Field(pattern=TABLE_NAME)]
Name = Annotated[str, Field(pattern=NAME)]
# Part of a topic's name.
EventType = Annotated[str, Field(pattern=TOPIC)]


def wrong(what: str, *at: str | int) -> PydanticCustomError:
    """An error of our own, below the value that is validated.

    Args:
        what: what was expected; no value of the file.
        at: keys and indexes from the value down to the culprit.
    """
    return PydanticCustomError("headwater", "wrong value", {"what": what, "at": at})


def unfit(pattern: str, text: object) -> str:
    """What was expected of a text that a pattern does not match; of a table's name the sign that it can't have, too.

    Args:
        pattern: one of ``PATTERNS``.
        text: what stands there; of it a single sign is told.
    """
    said = f"expected {PATTERNS.get(pattern, 'another form')}"
    sign = _STRANGE.search(text) if pattern in (TABLE, ONE_TABLE, TABLE_NAME) and isinstance(text, str) else None
    if sign is None:
        return said
    told = "a blank" if sign[0] == " " else repr(sign[0])
    return f"{said}; {told} can't be in it, nor in a topic's name: such a table is to be renamed"


def _only(function: Callable[[Any], Any]) -> WrapValidator:
    """A function of ours in place of pydantic's validation, whose errors for unions name every member."""
    return WrapValidator(lambda value, _: function(value))


def _size(value: Any) -> int:
    size = parse_size(value) if isinstance(value, str) else value
    if not isinstance(size, int) or isinstance(size, bool):
        raise wrong(f"expected a size: {PATTERNS[SIZE]}, or a whole number of bytes")
    if not 1 <= size <= 1 << 60:
        raise wrong("expected a size of 1 byte to 1 048 576 TiB")
    return size


# In bytes.
Size = Annotated[
    int,
    _only(_size),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": SIZE}, {"type": "integer", "exclusiveMinimum": 0}]}),
]


def _options(value: Any) -> dict[str, str | SecretStr]:
    if not isinstance(value, Mapping):
        raise wrong("expected a mapping (`name: value` lines)")
    if len(value) > MAX_ITEMS:
        raise wrong(f"at most {MAX_ITEMS} options")
    options: dict[str, str | SecretStr] = {}
    for name, item in value.items():
        if isinstance(item, SecretStr):
            options[name] = item
            continue
        if not isinstance(item, (str, int, float)):
            raise wrong("expected text, a number, true or false", name)
        text = str(item).lower() if isinstance(item, bool) else str(item)
        options[name] = SecretStr(text) if looks_secret(name) else text
    return options


def _plain_options(value: Any) -> dict[str, str]:
    return {k: v.get_secret_value() if isinstance(v, SecretStr) else v for k, v in _options(value).items()}


def _json(value: Any) -> Any:
    """A copy in plain types."""
    if isinstance(value, Mapping):
        return {str(name): _json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return str(value) if isinstance(value, str) else value


def _json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong("expected a mapping (`name: value` lines)")
    copied: dict[str, Any] = _json(value)
    return copied


def _mapping_of_fields(value: Any) -> dict[str, dict[str, Any]]:
    for name, item in value.items() if isinstance(value, Mapping) else ():
        if not isinstance(item, Mapping):
            raise wrong("expected a field's mapping, like {type: keyword}", name)
    return _json_object(value)


_SCALARS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
# Values whose key looks secret are SecretStr; numbers and booleans become text, as client libraries want them.
Options = Annotated[Mapping[str, SecretStr | str], _only(_options), WithJsonSchema(_SCALARS)]
# The same, for Spark: plain text all of it, masked by its key only when printed.
PlainOptions = Annotated[Mapping[str, str], _only(_plain_options), WithJsonSchema(_SCALARS)]
JsonObject = Annotated[Mapping[str, Any], _only(_json_object), WithJsonSchema({"type": "object"})]
FieldMapping = Annotated[
    Mapping[str, dict[str, Any]],
    _only(_mapping_of_fields),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "object"}}),
]


def _names(value: Any, pattern: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise wrong("expected a list")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise wrong("expected a name (text)", index)
        if not re.fullmatch(pattern, item):
            raise wrong(unfit(pattern, item), index)
    return tuple(str(item) for item in value)


def _all_or_tables(value: Any) -> Literal["all"] | tuple[str, ...]:
    if isinstance(value, str):
        if value == "all":
            return "all"
        raise wrong("expected 'all' or a list of tables")
    if not isinstance(value, (list, tuple)):
        raise wrong("expected 'all' or a list of tables")
    return _names(value, TABLE_NAME)


AllOrTables = Annotated[
    Literal["all"] | tuple[str, ...] | None,
    _only(_all_or_tables),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "all"},
                {"type": "array", "items": {"type": "string", "pattern": TABLE_NAME}, "minItems": 1},
            ]
        }
    ),
]


def _columns(value: Any) -> tuple[str | dict[str, str], ...]:
    if not isinstance(value, (list, tuple)):
        raise wrong("expected a list of columns, like [id, {name: title}]")
    return tuple(_column(item, index) for index, item in enumerate(value))


def _column(item: Any, index: int) -> str | dict[str, str]:
    if isinstance(item, str) and item:
        return str(item)
    if isinstance(item, Mapping) and len(item) == 1:
        ((source, name),) = item.items()
        if not isinstance(name, str) or not name:
            raise wrong("expected the column's name in the document (text)", index, source)
        return {str(source): str(name)}
    raise wrong("expected a column's name, or {column: name in the document}", index)


Columns = Annotated[
    tuple[str | dict[str, str], ...],
    _only(_columns),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {
                        "type": "object",
                        "additionalProperties": {"type": "string", "minLength": 1},
                        "minProperties": 1,
                        "maxProperties": 1,
                    },
                ]
            },
        }
    ),
]
