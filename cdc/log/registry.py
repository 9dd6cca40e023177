"""The schema registry through Confluent's API: an id's schema, fetched once a process and kept.

What a registry says of one id is about one record (UnknownSchemaId: a dead letter). That it does not answer, refuses,
or is empty, or that something else answers in its place, is not: these stop the flow, and no record is passed over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

from cdc import redirects, tls
from cdc.errors import RegistryError, RegistryUnavailable
from cdc.masking import mask_text
from cdc.records.encoding import JSON, Encoding, UnknownSchemaId

if TYPE_CHECKING:  # half a second to load, and not needed for JSON
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    from cdc.records.debezium_avro import Parsed

# Parsed schemas that a process keeps: one a table and a change of its columns. Each is some 100 KB at the most.
KEPT = 2_000
# An id that is not there is asked for again after so long: writers register a schema before they use it.
UNKNOWN_SECONDS = 10.0
REQUEST_SECONDS = 10.0
NOT_FOUND = 404
# A registry's own 404 bears a code: 40403 in Confluent's words, 40401 of an Apicurio with ids of before. One without is
# of what stands in front of it, and says nothing of an id.
NO_SUCH = range(40_400, 40_500)
# Of what stands in front of a registry, or of one that is busy: it may say otherwise in a moment. So may 5xx.
PASSING = {NOT_FOUND, 408, 429}
ANOTHER = "something else does in its place (a page, another server)"

log = logging.getLogger(__name__)


class Schemas:
    """The schemas of one registry; safe for threads.

    Args:
        settings: ``url``; ``user`` and ``password`` where it asks for them; ``ca_certs`` where a company's own
            authority has signed its certificate.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._client: SchemaRegistryClient | None = None
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Parsed] = OrderedDict()
        self._unknown: OrderedDict[int, float] = OrderedDict()

    def get(self, number: int) -> Parsed:
        """The schema of an id.

        Raises:
            UnknownSchemaId: there is none.
            ValueError: it is not one for records.
            RegistryUnavailable: no answer, or one that says nothing of the id: a page, a 404 without a registry's code,
                a redirect that passes, 408, 429 or 5xx (transient).
            RegistryError: it refused, its address leads elsewhere for good (301, 308), or it holds no schema at all
                (terminal).
        """
        found = self._known.get(number)
        if found is None:
            with self._lock:
                found = self._known.get(number) or self._fetch(number)
        return found

    def _fetch(self, number: int) -> Parsed:
        if time.monotonic() - self._unknown.get(number, -UNKNOWN_SECONDS) < UNKNOWN_SECONDS:
            raise _unknown(number)
        text = self._ask(number)
        if text is None:
            _keep(self._unknown, number, time.monotonic())
            raise _unknown(number)
        from cdc.records.debezium_avro import parse

        _keep(self._known, number, parsed := parse(text))
        return parsed

    def _ask(self, number: int) -> str | None:
        from confluent_kafka.schema_registry import SchemaRegistryError

        url = mask_text(self._settings["url"])
        try:
            schema = self._told(number, url)
        except RegistryError:
            raise
        except SchemaRegistryError as error:
            status = error.http_status_code
            if 300 <= status < 400:
                raise self._led_away(number, url, status) from error
            if status in PASSING or status >= 500 or status <= 0:
                raise _unavailable(url, f"it answers {status}") from error
            raise RegistryError(
                f"the schema registry at {url} answers {status}: {error.error_message}",
                means="records of Avro can't be read; nothing is skipped",
                fix="correct source.registry (url, user, password)",
            ) from error
        except Exception as error:  # the client lets its HTTP library's own family through
            file = isinstance(error, FileNotFoundError | PermissionError)  # which the error does not name
            if why := "ca_certs can't be read" if file else tls.refused(error):
                raise RegistryError(
                    f"the schema registry at {url} can't be trusted, or has no TLS: {why}",
                    means="records of Avro can't be read; nothing is skipped",
                    fix=tls.remedy("source.registry"),
                ) from error
            page = isinstance(error, JSONDecodeError | UnicodeDecodeError | TypeError | AttributeError)
            if page:  # or a fault of the client's, or of ours
                log.debug("what the schema registry's client could not read", exc_info=error)
            why = ANOTHER if page else mask_text(f"{type(error).__name__} {error}")
            raise _unavailable(url, why) from error
        if schema is None:
            return None
        if schema.schema_type not in (None, "AVRO"):
            raise ValueError(f"schema {number} is {schema.schema_type}, not Avro")
        return str(schema.schema_str)

    def _told(self, number: int, url: str) -> Schema | None:
        """What the registry itself says of an id: what stands in front of one may answer 200 or 404, too."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        client = self._open()
        self._client = None  # it keeps what it was told of an id, also by something else
        try:
            schema = client.get_schema(number)
            if isinstance(schema.schema_str, str) and schema.schema_str:
                self._client = client
                return schema
        except SchemaRegistryError as error:
            if error.http_status_code != NOT_FOUND or error.error_code not in NO_SUCH:
                raise
            subjects = client.get_subjects()
            if subjects and isinstance(subjects, list):
                self._client = client
                return None
            if subjects == []:
                raise RegistryError(
                    f"the schema registry at {url} is empty, but records name schema {number}",
                    means="it has lost its schemas, or it is another registry: no record of Avro can be read",
                    fix="bring its data back or correct source.registry.url; else `headwater recapture "
                    "FILE`, which tells first what it costs",
                ) from error
        raise _unavailable(url, ANOTHER)

    def _led_away(self, number: int, url: str, status: int) -> RegistryError:
        """What a redirect means. The client does not follow it, and does not tell where it leads: that is asked for."""
        import requests

        address, where = f"{self._settings['url'].rstrip('/')}/schemas/ids/{number}", "another address"
        with suppress(OSError, ValueError):  # requests' own, or an address that is none
            answer = requests.get(
                address,
                auth=(self._settings["user"], self._settings["password"]) if "user" in self._settings else None,
                timeout=REQUEST_SECONDS,
                verify=self._settings.get("ca_certs", True),
                allow_redirects=False,
            )
            if to := answer.headers.get("location"):
                where = redirects.led_to(address, to)
        kind = RegistryError if status in redirects.MOVED else RegistryUnavailable
        return kind(
            f"the schema registry does not answer at {url}: it leads to {where} ({status})",
            means="records of Avro can't be read; nothing is skipped",
            fix=redirects.remedy("source.registry.url"),
        )

    def _open(self) -> SchemaRegistryClient:
        if self._client is None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            conf: dict[str, Any] = {"url": self._settings["url"], "timeout": REQUEST_SECONDS, "max.retries": 1}
            if "user" in self._settings:
                conf["basic.auth.user.info"] = f"{self._settings['user']}:{self._settings['password']}"
            if "ca_certs" in self._settings:
                conf["ssl.ca.location"] = self._settings["ca_certs"]
            self._client = SchemaRegistryClient(conf)
        return self._client


def _keep(kept: OrderedDict[int, Any], number: int, value: Any) -> None:
    kept[number] = value
    kept.move_to_end(number)
    while len(kept) > KEPT:
        kept.popitem(last=False)


def _unknown(number: int) -> UnknownSchemaId:
    return UnknownSchemaId(f"the schema registry has no schema {number}")


def _unavailable(url: str, why: str) -> RegistryUnavailable:
    return RegistryUnavailable(
        f"the schema registry at {url} does not answer: {why}",
        means="records of Avro can't be read until it does; nothing is skipped",
        fix="start it (`headwater up --with registry` for the local one), or correct source.registry.url",
    )


def encoding_of(settings: Mapping[str, str] | None) -> Encoding:
    """How to read a pipeline's records.

    Args:
        settings: of ``cdc.pipeline.source.Source.reader``; None for JSON.

    Returns:
        the same object for the same settings in one process: its schemas are fetched once.
    """
    return JSON if settings is None else _avro(tuple(sorted(settings.items())))


@lru_cache(maxsize=16)
def _avro(settings: tuple[tuple[str, str], ...]) -> Encoding:
    from cdc.records.debezium_avro import Avro

    return Avro(Schemas(dict(settings)).get)
