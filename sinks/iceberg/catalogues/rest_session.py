"""pyiceberg's client of a REST catalogue, which alone waits without a limit, and takes whatever a gateway in front of
the server says for the server's word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from cdc.errors import SinkUnavailable
from cdc.masking import mask_text
from sinks.iceberg.storage import CONNECT_SECONDS, REQUEST_SECONDS

# Where the protocol begins: a server that speaks it has this path.
_CONFIG = "/v1/config"


class PatientCatalog(RestCatalog):
    """A ``RestCatalog`` whose requests end, and whose 404 is the catalogue's own; arguments as of that."""

    def _config_headers(self, session: Session) -> None:
        # The one step of making a session that comes before its first request, which may be for a token.
        super()._config_headers(session)
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Adapter(self.name))


class _Adapter(HTTPAdapter):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        """As ``HTTPAdapter.send``.

        Raises:
            SinkUnavailable: what has answered is not the catalogue (transient).
        """
        limits = timeout or (CONNECT_SECONDS, REQUEST_SECONDS)
        response = super().send(request, stream=stream, timeout=limits, verify=verify, cert=cert, proxies=proxies)
        if is_of_another(request.method, request.path_url, response):
            line = (response.text.strip().splitlines() or ["no text"])[0]
            raise SinkUnavailable(
                f"the REST catalogue of {self._name}: {response.status_code} for {request.method}"
                f" {mask_text(request.url or '')}, in words that are not of its protocol ({line[:100]})",
                means="something in front of it has answered, and says nothing of what is there",
                fix="if it stays so: see `catalog_uri` (the address in front of /v1) and what stands between",
            )
        return response


def is_of_another(method: str | None, path: str, response: Response) -> bool:
    """Whether an answer can't be the catalogue's: a gateway's whose server is away, or that asks for a login.

    A table that is said to be missing is taken for gone, and that ends a flow: so it must be said in the protocol's
    words. A 404 without any stays one (a HEAD has none, and some servers are short), but for the question that every
    server answers.

    Args:
        method: of the request.
        path: what was asked for.
        response: what came.
    """
    status = response.status_code
    if status == 404:
        silent = method == "HEAD" or not response.content
        asked_config = path.partition("?")[0].endswith(_CONFIG)
        return asked_config if silent else not _is_error(response)
    if 200 <= status < 300:
        nothing_due = method == "HEAD" or (method != "GET" and not response.content)
        return not (nothing_due or response.content.lstrip().startswith(b"{"))
    # A HEAD is not followed to where a redirect leads, and pyiceberg takes any for a "no".
    return status == 408 or (300 <= status < 400 and (method == "HEAD" or not response.is_redirect))


def _is_error(response: Response) -> bool:
    try:
        said = json.loads(response.content)
    except ValueError:
        return False
    return isinstance(said, dict) and isinstance(said.get("error"), dict)
