"""What every part of the pipeline file shares: strict parts, bounded types, and values that are never shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr, model_validator

HIDDEN = "**********"

# Option names whose values are secrets: passwords, tokens, keys, and settings that carry them inside (JAAS).
SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|credential|jaas|private|user\.info|api[._-]?key|(^|[._-])key(\.pem)?$",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"://\S*@")
_PARAMETER = re.compile(r"(?P<name>[?&;][\w.-]*(?:passw|secret|token|key|user)[\w.-]*=)[^&;#\s]*", re.IGNORECASE)

# Names that become parts of topics, slots, folders and Spark catalogues: all of these agree on this alphabet.
NAME = r"^[a-z][a-z0-9_]{0,39}$"
# Names of views and of fields in documents; what Elasticsearch, Spark SQL and Iceberg take without quoting.
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"


def mask_url(text: str) -> str:
    """An address without the credentials in it: ``redis://:pw@host/0`` -> ``redis://***@host/0``."""
    return _PARAMETER.sub(r"\g<name>***", _LOGIN.sub("://***@", text))


def masked(value: Any, name: str = "") -> Any:
    """A plain copy of a value that may be shown: secrets hidden, credentials in addresses masked."""
    if isinstance(value, SecretStr) or (name and SECRET_NAME.search(name) and not isinstance(value, Mapping)):
        return HIDDEN if value is not None else None
    if isinstance(value, str):
        return mask_url(value)
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value


def _whole(value: Any) -> Any:
    # Pydantic would take `port: true` as 1.
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


def _nothing(value: Any) -> Any:
    # `${TTL:-}` gives an empty text where the user means "not set".
    return None if value == "" else _whole(value)


def _hide_options(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        key: SecretStr(_scalar(item)) if SECRET_NAME.search(str(key)) and isinstance(item, str | int | float) else item
        for key, item in value.items()
    }


def _texts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {k: _scalar(v) if isinstance(v, int | float) else v for k, v in value.items()}


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_shown = PlainSerializer(masked, when_used="json")

Text = Annotated[str, Field(min_length=1, max_length=1000)]
Url = Annotated[str, Field(min_length=1, max_length=2000), _shown]
Int = Annotated[int, BeforeValidator(_whole)]
Float = Annotated[float, BeforeValidator(_whole)]
OptionalInt = Annotated[int | None, BeforeValidator(_nothing)]
Name = Annotated[str, Field(pattern=NAME)]
Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
# Options for a client, as text; secret-looking ones are hidden.
TextOptions = Annotated[
    Mapping[str, SecretStr | str],
    BeforeValidator(_hide_options),
    BeforeValidator(_texts),
    _shown,
    Field(max_length=200),
]
# Options of any scalar type; secret-looking ones are hidden.
ScalarOptions = Annotated[
    Mapping[str, SecretStr | str | bool | int | float], BeforeValidator(_hide_options), _shown, Field(max_length=200)
]
# Plain text to plain text, as others pass it on; secret-looking values are hidden where it is shown.
PlainOptions = Annotated[Mapping[str, str], BeforeValidator(_texts), _shown, Field(max_length=200)]


class Part(BaseModel):
    """A part of the file: unknown keys are errors, values do not change, secrets are not shown."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_not_given(cls, raw: Any) -> Any:
        # `policy:` with everything under it commented out is an empty value, and means the defaults.
        if not isinstance(raw, Mapping):
            return raw
        optional = {field.alias or name for name, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in raw.items() if value is not None or key not in optional}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, value if isinstance(value, Part) else _repr_value(value, name or "")


def _repr_value(value: Any, name: str) -> Any:
    if isinstance(value, Mapping) and any(isinstance(item, Part) for item in value.values()):
        return value
    return masked(value, name if name != "key" else "")
