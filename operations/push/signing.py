"""The signature of a webhook by the Standard Webhooks scheme. Pure.

A receiver computes it again with any of that scheme's libraries.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cdc.pipeline.push import key_of


def signed(secret: str, message: str, at: int, body: bytes) -> dict[str, str]:
    """The headers that prove who sends a body.

    Args:
        secret: as in the pipeline file.
        message: its id, the same when it is sent again.
        at: when it is sent, epoch seconds: a receiver refuses what is old.
        body: as it is sent.
    """
    told = b"%s.%d.%s" % (message.encode(), at, body)
    proof = base64.b64encode(hmac.new(key_of(secret), told, hashlib.sha256).digest()).decode()
    return {"webhook-id": message, "webhook-timestamp": str(at), "webhook-signature": f"v1,{proof}"}


def message_id(*parts: str) -> str:
    """An id that follows from what it is made of."""
    return "msg_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]
