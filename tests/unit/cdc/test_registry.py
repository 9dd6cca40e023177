"""The schema registry's client against a real HTTP server: what is one record's trouble, and what is everybody's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import RegistryError, RegistryUnavailable
from cdc.log import registry
from cdc.log.registry import Schemas, encoding_of
from cdc.pipeline import source as source_of
from cdc.records.encoding import JSON, UnknownSchemaId
from connectors.preflight import registry as preflight
from connectors.preflight.model import Site

SCHEMA = json.dumps({"type": "record", "name": "a", "fields": [{"name": "x", "type": "int"}]})


ELSEWHERE = "https://u:pa55@registry.example.org/ccompat?state=5ecret#5ecret"


class Registry(ThreadingHTTPServer):
    """Answers as it is told, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.told: dict[str, tuple[int, Any]] = {"/subjects": (200, ["t-value"])}
        self.asked: list[str] = []
        self.logins: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        self.server.logins.add(self.headers.get("Authorization"))
        status, body = self.server.told.get(path, (404, {"error_code": 40403, "message": "Schema not found"}))
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        if 300 <= status < 400:
            self.send_header("Location", ELSEWHERE)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Registry]:
    made = Registry()
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def test_a_schema_is_fetched_once_and_so_is_its_absence(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    server.told["/schemas/ids/3"] = (200, {"schema": SCHEMA})
    schemas = Schemas({"url": server.url})
    assert schemas.get(3) is schemas.get(3)
    assert server.asked == ["/schemas/ids/3"]
    for _ in range(3):
        with pytest.raises(UnknownSchemaId, match="no schema 4"):
            schemas.get(4)
    assert server.asked.count("/schemas/ids/4") == 1
    monkeypatch.setattr(registry, "UNKNOWN_SECONDS", 0.0)
    server.told["/schemas/ids/4"] = (200, {"schema": SCHEMA})
    assert schemas.get(4).names == {}  # it has come since


def test_what_is_kept_is_bounded(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KEPT", 2)
    server.told |= {f"/schemas/ids/{n}": (200, {"schema": SCHEMA}) for n in range(4)}
    schemas = Schemas({"url": server.url})
    for number in (0, 1, 2, 3, 3, 2, 0):
        schemas.get(number)
    assert len(schemas._known) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_is_ill_is_transient(server: Registry, status: int) -> None:
    server.told["/schemas/ids/3"] = (status, {"error_code": status, "message": "later"})
    with pytest.raises(RegistryUnavailable, match=str(status)) as caught:
        Schemas({"url": server.url}).get(3)
    assert caught.value.transient


# What stands in front of a registry answers in its place: a maintenance page, an ingress without a backend, a login.
PLACEHOLDERS = [
    (200, b"<html>maintenance</html>"),
    (200, b"\xff\xfe"),
    (200, b""),
    (200, {"status": "maintenance"}),
    (200, {"schema": ""}),
    (200, {"schema": {"type": "record"}}),
    (200, "maintenance"),
    (404, b"404 page not found"),
    (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    (404, ["no"]),
    (302, b"<html>302 Found</html>"),
    (303, b""),
    (307, b""),
    (408, b"later"),
]


@pytest.mark.parametrize(("status", "body"), PLACEHOLDERS)
def test_another_answer_in_its_place_is_not_one_records_trouble(server: Registry, status: int, body: Any) -> None:
    """A page made dead letters of good records, an ingress's 404 "no schema 3", and a login's 302 ended the flow."""
    server.told["/schemas/ids/3"] = (status, body)
    schemas = Schemas({"url": server.url})
    with pytest.raises(RegistryUnavailable):
        schemas.get(3)
    server.told["/schemas/ids/3"] = (200, {"schema": SCHEMA})
    assert schemas.get(3).names == {}, "nothing of that answer is kept"


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, {"status": "maintenance"}), (404, b"no"), (200, b"")]
)
def test_nor_is_one_that_comes_in_the_middle(server: Registry, status: int, body: Any) -> None:
    """The registry says that it has no such schema, and something else what it has: neither is it told as empty."""
    server.told["/subjects"] = (status, body)
    schemas = Schemas({"url": server.url})
    with pytest.raises(RegistryUnavailable):
        schemas.get(3)
    server.told["/subjects"] = (200, ["t-value"])
    with pytest.raises(UnknownSchemaId):
        schemas.get(3)


@pytest.mark.parametrize("code", [40403, 40401])
def test_a_registrys_own_404_is_known_by_its_code(server: Registry, code: int) -> None:
    """40401 is what Apicurio says with `apicurio.ccompat.legacy-id-mode.enabled`."""
    server.told["/schemas/ids/3"] = (404, {"error_code": code, "message": "not there"})
    with pytest.raises(UnknownSchemaId, match="no schema 3"):
        Schemas({"url": server.url}).get(3)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_where_a_redirect_leads_is_told_and_one_that_stays_is_final(server: Registry, status: int) -> None:
    """It was waited for without end, with the advice to start the registry; `check` followed it, and found nothing."""
    server.told |= {f"/schemas/{path}": (status, ["AVRO"]) for path in ("ids/3", "types")}
    with pytest.raises(RegistryError, match=f"leads to https://registry.example.org/ccompat .{status}") as caught:
        Schemas({"url": server.url}).get(3)
    assert caught.value.transient == (status not in (301, 308))
    source = SimpleNamespace(registry=source_of.Registry(url=server.url), format="json")
    site = cast(Site, SimpleNamespace(pipeline=SimpleNamespace(source=source), failed=set()))
    [found] = preflight.run(site)
    for said, way in ((str(caught.value), caught.value.fix), (found.message, found.fix)):
        assert "registry.example.org/ccompat (" in said and "the address that it leads to" in way
        assert not any(secret in said + way for secret in ("5ecret", "pa55"))


def test_what_the_client_trips_over_is_logged_for_who_looks_for_it(
    server: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    server.told["/schemas/ids/3"] = (200, "maintenance")
    with caplog.at_level("DEBUG", logger=registry.__name__), pytest.raises(RegistryUnavailable):
        Schemas({"url": server.url}).get(3)
    # Not by the text: Spark's client, once it is loaded, writes records as JSON.
    assert [record.exc_info is not None for record in caplog.records if record.name == registry.__name__] == [True]


def test_a_registry_that_is_down_is_transient(server: Registry) -> None:
    schemas = Schemas({"url": "http://127.0.0.1:9"})
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        schemas.get(3)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_not_transient(server: Registry, status: int) -> None:
    server.told["/schemas/ids/3"] = (status, {"error_code": status, "message": "who are you"})
    with pytest.raises(RegistryError, match="who are you") as caught:
        Schemas({"url": server.url}).get(3)
    assert not caught.value.transient
    assert "secret" not in str(caught.value)


def test_an_empty_registry_is_not_one_records_trouble(server: Registry) -> None:
    server.told["/subjects"] = (200, [])
    with pytest.raises(RegistryError, match="is empty") as caught:
        Schemas({"url": server.url}).get(3)
    assert not caught.value.transient


def test_user_and_password_are_sent(server: Registry) -> None:
    server.told["/schemas/ids/3"] = (200, {"schema": SCHEMA})
    Schemas({"url": server.url, "user": "me", "password": "secret"}).get(3)
    assert server.logins == {"Basic bWU6c2VjcmV0"}


def test_a_schema_of_another_kind_is_one_records_trouble(server: Registry) -> None:
    server.told["/schemas/ids/3"] = (200, {"schema": "{}", "schemaType": "JSON"})
    with pytest.raises(ValueError, match="JSON, not Avro"):
        Schemas({"url": server.url}).get(3)


def test_one_encoding_a_process() -> None:
    assert encoding_of(None) is JSON
    assert encoding_of({"url": "http://a"}) is encoding_of({"url": "http://a"})
    assert encoding_of({"url": "http://a"}) is not encoding_of({"url": "http://b"})
