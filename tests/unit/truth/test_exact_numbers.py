"""What is shown of a document has every digit that a sink holds."""

from __future__ import annotations

import orjson
import pytest

from truth.values import exact, parse


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
