"""What must never be printed: passwords, keys and tokens, wherever they stand. The one rule for all of Headwater.

Secrets of their own key are ``SecretStr``. Two kinds hide inside other values and are masked when something is printed:
the userinfo of a URL (``redis://:password@host``) and options whose key says that the value is secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

MASK = "**********"

# Every `sasl.*` is hidden, also the harmless ones: `sasl.jaas.config` holds a password in the middle of a sentence, and
# the next client version may have another such key.
# The text is Java's as well as Python's: Spark hides by it, too (spark/machine/settings.py).
HIDDEN_NAMES = (
    r"passw|passphrase|secret|token(?!i[sz]|[._-]?(?:length|limit|count|filter|chars))|credential|sasl\.|jaas"
    r"|webhook|api[._-]?key|access[._-]?key|private|user[._-]?info|key[._-]?pem|keystore[._-]?key"
)
_SECRET_KEY = re.compile(HIDDEN_NAMES, re.IGNORECASE)
# Greedy to the last "@": a password may hold an unescaped "/" or "@"; hiding too much of an odd URL is harmless.
_USERINFO = re.compile(r"(?P<scheme>://)(?P<info>[^\s]*)@")
_PARAMETER = re.compile(r"(?P<key>[?&;](?P<name>[^=&;?\s]+)=)(?P<value>[^&;\s]*)")


def looks_secret(key: str) -> bool:
    """Whether a key (``ssl.key.password``, ``sasl.jaas.config``, ``fs.s3a.secret.key``) names a secret value."""
    return bool(_SECRET_KEY.search(key))


def mask_text(text: str) -> str:
    """A text with the passwords of the URLs in it masked; the user name is kept.

    Args:
        text: a URL, a JDBC URL, or any text.
    """

    def userinfo(found: re.Match[str]) -> str:
        user, colon, _ = found["info"].partition(":")
        return f"{found['scheme']}{user}:{MASK}@" if colon else f"{found['scheme']}{MASK}@"

    def parameter(found: re.Match[str]) -> str:
        return found["key"] + (MASK if looks_secret(found["name"]) else found["value"])

    return _PARAMETER.sub(parameter, _USERINFO.sub(userinfo, text))


def masked(value: Any, key: str = "") -> Any:
    """Plain data or a model's field with everything secret in it masked.

    Args:
        value: a scalar, list, mapping or model.
        key: the key under which it stands; a scalar under a secret key is masked.
    """
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, Mapping):
        return {name: masked(item, str(name)) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(masked(item, key) for item in value)
    if isinstance(value, str):
        return MASK if value and looks_secret(key) else mask_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and looks_secret(key):
        return MASK
    return value


def reveal(value: Any) -> Any:
    """Plain data with every ``SecretStr`` in it as the text that it hides; for clients only, never for printing.

    Args:
        value: a scalar, list, mapping or model.
    """
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return reveal(value.model_dump(by_alias=True))
    if isinstance(value, Mapping):
        return {name: reveal(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [reveal(item) for item in value]
    return value
