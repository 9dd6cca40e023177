"""``push`` of the pipeline file: who is sent a view's changes (docs/push.md)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Literal

from pydantic import SecretStr, field_validator

from cdc.errors import ConfigError
from cdc.pipeline.fields import HTTP, NAME, PATTERNS, Name, Part, Whole, entry, wrong

# As the Standard Webhooks say.
SECRET_PREFIX = "whsec_"  # noqa: S105 (what a secret begins with)
SECRET_BYTES = (24, 64)


class Webhook(Part):
    """An address that `headwater run` posts a view's changes to, signed by the Standard Webhooks scheme."""

    view: Name = entry(description="The view whose changes are sent.", example="customer", pattern=NAME)
    sink: Name | None = entry(
        None,
        "The redis sink that keeps them (`changes`).",
        shown_default="the only one that keeps changes",
        example="cache",
    )
    url: SecretStr = entry(
        description="Address (http or https) that is sent a POST with a JSON list of events. It often holds a secret, "
        "so it is never printed.",
        example="${ORDERS_WEBHOOK:-https://app.example.org/changes}",
    )
    secret: SecretStr = entry(
        description="What the receiver proves the signature with: whsec_ and 24 to 64 bytes in base64, also without "
        "whsec_.",
        example="${ORDERS_WEBHOOK_SECRET:-whsec_bm90IGEgc2VjcmV0LCBidXQgbG9uZyBlbm91Z2g=}",
    )
    filter: str | None = entry(
        None,
        "JMESPath over a document; only what it is true of is sent.",
        shown_default="everything",
        example="status == 'open'",
    )
    batch: Whole = entry(100, "Most events of one POST.", unit="events", ge=1, le=500)
    start: Literal["snapshot", "now"] = entry(
        "snapshot", "What it is sent first: all documents, or only what comes.", alias="from"
    )

    @property
    def chosen(self) -> str:
        """What is sent of all: the filter. Equal ones choose the same."""
        return self.filter or ""

    @field_validator("url")
    @classmethod
    def _address(cls, value: SecretStr) -> SecretStr:
        return checked_address(value)

    @field_validator("secret")
    @classmethod
    def _key(cls, value: SecretStr) -> SecretStr:
        return checked_secret(value)

    @field_validator("filter")
    @classmethod
    def _filter(cls, value: str | None) -> str | None:
        from cdc.filters import compiled  # only files that have one pay for it

        if value is None:
            return None
        text = value.strip()  # no other filter for blanks around it
        try:
            compiled(text)
        except ConfigError as error:
            raise wrong(f"{error.what.removeprefix('filter: ')} ({error.fix})") from error
        return text


def checked_address(value: SecretStr) -> SecretStr:
    """An address as a webhook has it; any other is an error of the file."""
    if not re.fullmatch(HTTP, value.get_secret_value()):
        raise wrong(f"expected {PATTERNS[HTTP]}")
    return value


def checked_secret(value: SecretStr) -> SecretStr:
    """What a webhook is signed with; any other is an error of the file."""
    try:
        size = len(key_of(value.get_secret_value()))
    except ValueError:
        size = 0
    if not SECRET_BYTES[0] <= size <= SECRET_BYTES[1]:
        raise wrong("expected whsec_ and base64 of 24 to 64 bytes: `openssl rand -base64 32` makes some")
    return value


def key_of(secret: str) -> bytes:
    """The key that a secret's text stands for.

    Raises:
        ValueError: that is no base64.
    """
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
