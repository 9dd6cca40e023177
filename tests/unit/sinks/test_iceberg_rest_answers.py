"""What a REST catalogue's client takes for the server's word, and how long it waits for it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from cdc.errors import SinkRefused, SinkUnavailable
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg.catalogues import rest_session

SINK: Any = SimpleNamespace(catalog_uri="http://lake.example/api", warehouse="/w", namespace="n")
CONFIG = (200, b'{"defaults": {}, "overrides": {}}')
GONE = (404, b'{"error": {"message": "Table does not exist: n.v", "type": "NoSuchTableException", "code": 404}}')
# Of a server that is asked for tables by a HEAD.
KNOWS_HEAD = (
    200,
    b'{"defaults": {}, "overrides": {}, "endpoints": ["HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",'
    b' "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]}',
)
NO_WAREHOUSE = (404, b'{"error": {"message": "Unable to find warehouse w", "type": "NotFoundException", "code": 404}}')
# Of a gateway that has lost its server, or has a page of its own.
ANOTHERS = {
    "text": (404, b"404 page not found"),
    "json": (404, b'{"message": "no Route matched with those values"}'),
    "spring": (404, b'{"status": 404, "error": "Not Found"}'),
    "page": (200, b"<html>We are back soon</html>"),
    "nothing": (200, b""),
    "timeout": (408, b""),
    "login": (302, b"<html>302 Found</html>"),
    "multiple": (300, b"[]"),
}

Say = Callable[..., None]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Say:
    """What is answered, one after the other; the last of them from then on."""
    answers: list[tuple[Any, ...]] = []

    def send(_self: object, request: PreparedRequest, *_more: object, **_others: object) -> Response:
        response = Response()
        response.status_code, response._content, *leads = answers.pop(0) if len(answers) > 1 else answers[0]
        response.headers.update({"Location": leads[0]} if leads else {})
        response.request, response.url = request, request.url or ""
        return response

    monkeypatch.setattr(HTTPAdapter, "send", send)
    return lambda *given: answers.__setitem__(slice(None), given)


@pytest.mark.parametrize("answer", ANOTHERS.values(), ids=ANOTHERS)
@pytest.mark.parametrize("before", [(), (CONFIG,)], ids=["at its first question", "at the table"])
def test_what_a_gateway_says_is_not_taken_for_the_catalogues_word(
    say: Say, before: tuple[Any, ...], answer: tuple[int, bytes]
) -> None:
    """A table was "gone", and its flow ended for good, because an ingress had no route for a second."""
    say(*before, answer)
    for ask in (lambda: iceberg.there(SINK, "hw_w", "v", 1), lambda: iceberg.drop_table(SINK, "hw_w", "v", 1, "p/w")):
        with pytest.raises(SinkUnavailable, match="hw_w"):
            ask()


def test_a_server_that_answers_json_of_another_kind_is_waited_for(say: Say) -> None:
    say(CONFIG, (200, b'{"status": "maintenance"}'))
    with pytest.raises(SinkUnavailable, match="answers what is not of its protocol"):
        iceberg.there(SINK, "hw_w", "v", 1)


@pytest.mark.parametrize("status", [410, 413, 425, 451])
@pytest.mark.parametrize("before", [(), (CONFIG,)], ids=["at its first question", "at the table"])
def test_so_is_one_whose_status_has_no_meaning_in_the_protocol(say: Say, before: tuple[Any, ...], status: int) -> None:
    """At the first question it was refused for good, and waited for at the next."""
    say(*before, (status, b""))
    with pytest.raises(SinkUnavailable, match="hw_w"):
        iceberg.there(SINK, "hw_w", "v", 1)


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_a_first_question_that_the_server_refuses_is_not_waited_for(say: Say, status: int) -> None:
    say((status, b'{"error": {"message": "no such prefix", "type": "BadRequestException", "code": 400}}'))
    with pytest.raises(SinkRefused, match="hw_w"):
        iceberg.there(SINK, "hw_w", "v", 1)


@pytest.mark.parametrize("answer", [GONE, (404, b"")], ids=["in the protocol's words", "in none"])
def test_a_table_that_is_not_there_is_not_waited_for(say: Say, answer: tuple[int, bytes]) -> None:
    """A HEAD is answered without a word, and some servers say none to a GET either."""
    say(CONFIG, answer)
    assert not iceberg.there(SINK, "hw_w", "v", 1)
    say(CONFIG, answer)
    with iceberg.open_catalog(SINK, "hw_w") as opened:
        assert not opened.table_exists(("n", "v")) and not opened.namespace_exists("n")


def test_a_redirect_says_of_no_table_that_it_is_not_there(say: Say) -> None:
    """A login page's address was followed by no HEAD, and pyiceberg took the 302 for a "no"."""
    say(KNOWS_HEAD, (302, b"", "https://login.example"))
    with iceberg.open_catalog(SINK, "hw_w") as opened, pytest.raises(SinkUnavailable, match="302 for HEAD"):
        opened.table_exists(("n", "v"))


def test_a_promotion_does_not_take_a_gateways_404_for_a_name_that_is_free(say: Say) -> None:
    """It asked by a HEAD, whose 404 has no words that would tell whose it is."""
    say(KNOWS_HEAD, ANOTHERS["text"], GONE)
    with pytest.raises(SinkUnavailable, match="404 page not found"):
        iceberg.promote_table(SINK, "hw_w", "v", 2, 1, "p/w")


def test_a_warehouse_that_the_server_does_not_know_is_refused(say: Say) -> None:
    say(NO_WAREHOUSE)
    with pytest.raises(SinkRefused, match="Unable to find warehouse"):
        iceberg.there(SINK, "hw_w", "v", 1)


def test_a_first_question_that_is_answered_404_without_a_word_is_a_gateways(say: Say) -> None:
    say((404, b""))
    with pytest.raises(SinkUnavailable, match="no text"):
        iceberg.there(SINK, "hw_w", "v", 1)


def test_what_is_done_needs_no_answer_with_a_text(say: Say) -> None:
    say(CONFIG, (204, b""))
    with iceberg.open_catalog(SINK, "hw_w") as opened:
        opened.drop_table(("n", "v"))


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts, and answers nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("more", [{}, {"credential": "me:s3cr3t-1"}], ids=["config", "token"])
def test_a_server_that_is_silent_is_not_waited_for_without_an_end(
    silent: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its flows' starts took all hands of the runner for ever: no flow of any sink was started again."""
    monkeypatch.setattr(rest_session, "REQUEST_SECONDS", 0.3)
    sink = SimpleNamespace(**{**vars(SINK), "catalog_uri": silent, **more})
    with pytest.raises(SinkUnavailable, match="does not answer"):
        iceberg.there(sink, "hw_w", "v", 1)


def test_spark_does_not_wait_longer_than_we_do() -> None:
    told = iceberg.spark_properties(SINK)
    limits = ("rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms")
    assert [int(told[name]) / 1000 for name in limits] == [5, 60]
