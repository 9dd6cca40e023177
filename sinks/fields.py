"""Reading a sink's plain-data configuration with bounds. A mistake names the key and what was expected, never the value
of a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from cdc.errors import ConfigError
from cdc.masking import looks_secret, mask_text

T = TypeVar("T")

# Redis's scripts compare tokens as doubles, which are exact up to here.
MAX_TOKEN = 2**53


class Fields:
    """Takes keys out of a mapping one by one; ``done`` refuses what is left (a typing error must not be ignored).

    Whatever takes a key raises a ConfigError (terminal) for a value that is not of its kind, as ``done`` does.
    """

    def __init__(self, who: str, config: Mapping[str, Any]) -> None:
        self.who, self._left = who, dict(config)

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty string; required when there is no default."""
        value = self._left.pop(key, None)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not (value or default == ""):
            raise self.wrong(key, value, "a string")
        return value

    def optional(self, key: str) -> str | None:
        """A string or nothing (empty counts as nothing, because ``${UNSET:-}`` gives that)."""
        value = self._left.pop(key, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, value, "a string")
        return value or None

    def number(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number in low … high."""
        value = self._left.pop(key, None)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, value, f"a whole number from {low} to {high}")
        return value

    def seconds(self, key: str, default: float | None, high: float) -> float | None:
        """Seconds above 0 up to ``high``; None where None is the default."""
        value = self._left.pop(key, None)
        value = default if value is None else value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= high:
            raise self.wrong(key, value, f"seconds, more than 0 and at most {high:g}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self._left.pop(key, None)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """A mapping with string keys; empty when absent."""
        value = self._left.pop(key, None)
        value = {} if value is None else value
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self.wrong(key, value, "a mapping")
        return dict(value)

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        if self._left:
            raise ConfigError(f"{self.who}: unknown setting {', '.join(sorted(self._left))}")

    def wrong(self, key: str, value: object, expected: str) -> ConfigError:
        """The error for one key."""
        shown = "(hidden)" if looks_secret(key) or key == "url" else mask_text(repr(value))[:80]
        return ConfigError(f"{self.who}: {key} must be {expected}, not {shown}")
