"""A catalogue behind Iceberg's REST protocol: Polaris, Lakekeeper, Nessie, Gravitino, a cloud's own …"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cdc import tls
from cdc.errors import SinkRefused, SinkUnavailable
from cdc.masking import mask_text
from sinks.iceberg.catalogues.sql import taken
from sinks.iceberg.place import Place
from sinks.iceberg.storage import CONNECT_SECONDS, REQUEST_SECONDS, credentials, on_s3, untrusted

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import Table

# The server is asked for keys of the bucket, where we have none of our own.
_DELEGATE = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
# To the first question: that the address, or the warehouse, is wrong. What else is no answer of the protocol may pass.
_NO_CATALOGUE = (400, 404, 422)
# What `requests` says of a file that the environment names and that is not there.
_NO_BUNDLE = "TLS CA certificate bundle"


class RestCatalogue:
    """A server's.

    Args:
        place: of the warehouse.
    """

    # Two renames follow one another; a slow server takes some tenths of a second for each.
    gap_seconds = 5.0

    def __init__(self, place: Place) -> None:
        self._place = place

    def spark_properties(self) -> dict[str, str]:
        """See ``kinds.Catalogue``."""
        delegated = on_s3(self._place) and credentials(self._place)[0] is None
        # Each scan would else be reported to the server by a request of its own.
        return {
            "type": "rest",
            "rest-metrics-reporting-enabled": "false",
            # Of its own it waits without an end, as pyiceberg does (``rest_session``).
            "rest.client.connection-timeout-ms": str(CONNECT_SECONDS * 1000),
            "rest.client.socket-timeout-ms": str(REQUEST_SECONDS * 1000),
            **self._own(),
            **(_DELEGATE if delegated else {}),
        }

    def pyiceberg_properties(self) -> dict[str, str]:
        """See ``kinds.Catalogue``. pyiceberg asks for a bucket's keys by itself."""
        return self._own()

    def _own(self) -> dict[str, str]:
        """What both clients call by the same names."""
        place, uri = self._place, self._place.catalog_uri.rstrip("/")
        said = {
            "uri": uri,
            "warehouse": place.rest_warehouse,
            "token": place.token,
            "credential": place.credential,
            "scope": place.scope,
            # Always said: both clients warn of the address that they would else take.
            "oauth2-server-uri": (place.oauth_uri or f"{uri}/v1/oauth/tokens") if place.credential else None,
        }
        return {key: value for key, value in said.items() if value is not None}

    @contextmanager
    def open(self, name: str, properties: dict[str, str]) -> Iterator[RestCatalog]:
        """See ``kinds.Catalogue``."""
        from pydantic import ValidationError
        from pyiceberg.exceptions import OAuthError, RESTError

        from sinks.iceberg.catalogues.rest_session import PatientCatalog

        with self._named(name):
            try:
                opened = PatientCatalog(name, **properties)
            except ValidationError:
                raise
            except ValueError as error:
                raise self._no_catalogue(name, mask_text(str(error))) from error
            except RESTError as error:
                if _status(error) in _NO_CATALOGUE and not isinstance(error, OAuthError):
                    raise self._no_catalogue(name, str(error)) from error
                raise
            try:
                yield opened
            finally:
                opened.close()

    def swap(self, opened: RestCatalog, seen: Table, built: Table, aside: str) -> bool:
        """See ``kinds.Catalogue``: two renames, because the protocol has no more. Between them the name leads nowhere;
        who is ended there leaves both tables under their own names, and the next promotion, of either, finishes."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        namespace, shown = seen.name()[-2:]
        try:
            opened.rename_table((namespace, shown), (namespace, aside))
        except TableAlreadyExistsError as error:
            raise taken(opened.name, aside) from error
        except NoSuchTableError:  # another promotion is at work, or has been
            return False
        try:
            opened.rename_table(built.name()[-2:], (namespace, shown))
        except Exception:
            with suppress(Exception):  # readers find what they found, if the server is still there
                opened.rename_table((namespace, aside), (namespace, shown))
            raise
        return True

    def begun(self, properties: dict[str, str]) -> bool:
        """See ``kinds.Catalogue``: its server has made it."""
        return True

    def check(self, name: str, properties: dict[str, str]) -> None:
        """See ``kinds.Catalogue``."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        with self.open(name, properties) as opened, suppress(NoSuchNamespaceError):
            opened.list_tables(self._place.namespace)

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """What the client raises inside, in our own words; outcomes of a request stay what they are."""
        from pydantic import ValidationError
        from pyiceberg.exceptions import (
            AuthorizationExpiredError,
            ForbiddenError,
            OAuthError,
            RESTError,
            ServerError,
            ServiceUnavailableError,
            TooManyRequestsError,
            UnauthorizedError,
        )
        from requests.exceptions import RequestException

        where = f"the REST catalogue of {name} at {mask_text(self._place.catalog_uri)}"
        try:
            yield
        except RequestException as error:
            if why := tls.refused(error):
                raise _untrusted(where, why) from error
            raise SinkUnavailable(
                f"{where} does not answer ({type(error).__name__})", fix="see `catalog_uri`"
            ) from error
        except OSError as error:  # of `requests` itself, before anything is asked
            if _NO_BUNDLE not in str(error):
                raise
            raise _untrusted(where, _line(error)) from error
        except (ServiceUnavailableError, ServerError, TooManyRequestsError) as error:
            raise SinkUnavailable(f"{where}: {_line(error)}") from error
        except (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError) as error:
            raise SinkRefused(
                f"{where} does not let us in ({_line(error)})",
                means="nothing was written",
                fix="see the variable that `token` or `credential` of the sink names, `scope`, and the rights there",
            ) from error
        except ValidationError as error:
            if not error.title.endswith("Response"):  # not of an answer, but of whoever works with the catalogue
                raise
            raise SinkUnavailable(f"{where} answers what is not of its protocol: {str(error)[:300]}") from error
        except RESTError as error:
            if type(error) is not RESTError:
                raise
            raise SinkUnavailable(f"{where}: {_line(error)}") from error  # a status that the protocol gives no meaning
        except NotImplementedError as error:
            raise SinkRefused(f"{where} can't do what is needed: {_line(error)}") from error

    def _no_catalogue(self, name: str, why: str) -> SinkRefused:
        return SinkRefused(
            f"the REST catalogue of {name} at {mask_text(self._place.catalog_uri)} does not open: {why[:300]}",
            fix="see `catalog_uri` (the address in front of /v1) and `rest_warehouse`",
        )


def _untrusted(where: str, why: str) -> SinkRefused:
    return untrusted(where, why, "REQUESTS_CA_BUNDLE", "`catalog_uri` (and `oauth_uri`)")


def _status(error: BaseException) -> int | None:
    """Of the answer that pyiceberg has made an error of."""
    answer = getattr(error.__cause__, "response", None)
    return None if answer is None else int(answer.status_code)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
