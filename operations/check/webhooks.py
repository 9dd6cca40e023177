"""``headwater check``, the webhooks: does anybody listen at their addresses? Nothing is sent there."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr

from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import outlets
from connectors.preflight import Answer, Check, Finding, Level

WEBHOOK = Check("webhook", "webhooks' addresses can be reached", lambda site: ())
CONNECT_SECONDS = 3.0


def checked_webhooks(pipeline: Pipeline) -> Iterator[Answer]:
    """One answer for all webhooks of a pipeline; none if it has none. Changes nothing.

    Args:
        pipeline: the loaded file.
    """
    hooks = {one.name: one.url for one in outlets(pipeline) if one.url is not None}
    if hooks:
        yield Answer(WEBHOOK, tuple(_findings(hooks)))


def _findings(hooks: Mapping[str, SecretStr]) -> Iterator[Finding]:
    for name, address in hooks.items():
        url = urlsplit(address.get_secret_value())
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            socket.create_connection((url.hostname or "", port), CONNECT_SECONDS).close()
        except OSError as error:
            why = error.strerror or type(error).__name__
            yield Finding(
                Level.WARNING,
                name,
                f"webhook {name}: nobody answers at port {port} of its host ({why}): its events would wait",
                "start the receiver, or mend `url`; `run` tries again for as long as it takes",
            )
