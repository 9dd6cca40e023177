"""What is shown of a document has every digit that a sink holds."""

from __future__ import annotations

import orjson
import pytest

from cdc.catalogue import Column, Table
from cdc.view import View
from operations.holding import with_later
from truth.values import canonical, exact, parse


@pytest.mark.parametrize(
    "text",
    [
        b'{"big":12345678901234567890.123}',
        b'{"a":[1,-9223372036854775808,18446744073709551616,0.1,1e+400],"b":{"c":0.10000000000000000001}}',
        b'{"long":%s}' % (b"9" * 5_000),
        b'{"plain":"12345678901234567890.123","none":null,"so":true}',
    ],
    ids=["one", "several", "thousands of digits", "none"],
)
def test_as_it_came(text: bytes) -> None:
    assert orjson.dumps(exact(text)) == text


def test_a_double_is_one() -> None:
    assert exact(b'{"a":1.50,"b":7}') == {"a": 1.5, "b": 7}
    with pytest.raises(ValueError, match="NaN is not JSON"):
        exact(b'{"a":NaN}')


def test_a_number_that_python_refuses_to_read_is_compared_by_its_text() -> None:
    assert parse(b'{"a":%s}' % (b"9" * 5_000)) == {"a": "9" * 5_000}


DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize(
    ("odd", "read"),
    [
        (b'"\\ud800 \\ud83d\\ude00"', r"\ud800 😀"),
        *((b"[" * levels + b"]" * levels, None) for levels in (240, 300, 1_100, 5_000)),
    ],
)
def test_what_no_reader_takes_is_shown_and_compared_all_the_same(odd: bytes, read: str | None) -> None:
    """What Postgres has and a writer refuses ended `preview` and `explain --expected` in an error."""
    document, other = b'{"b":1, "a":%s}' % odd, b'{"a":%s,"b":1}' % odd
    for found in (exact(document), parse(document)):
        assert found["a"] == read or read is None
        assert orjson.dumps({"in": [found]})
    assert canonical(document) == canonical(other) != canonical(b'{"a":[],"b":1}')


def test_what_differs_only_deep_below_differs() -> None:
    one, two = (DEEP.replace(b"[]", b"[%d]" % number) for number in (1, 2))
    assert canonical(one) == canonical(one) != canonical(two)


def test_a_document_of_before_a_column_lacks_it_whatever_else_it_has() -> None:
    columns = tuple(Column(name, "int8", "int8") for name in ("id", "n"))
    view = View.identity(Table("public", "t", columns, ("id",), later=("n",)))
    assert with_later(view, b'{"id":1e400}') == b'{"id":1e400,"n":null}'
