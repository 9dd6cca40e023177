"""An index that may have no more fields: who reads of it is told what helps, and is not sent to a rebuild that is
refused by the same limit. With the words of Elasticsearch 8 and OpenSearch 3."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from elastic_transport import ApiResponseMeta, HttpHeaders, NodeConfig
from elasticsearch import BadRequestError

from cdc.errors import SinkRefused
from sinks.elasticsearch import mapping
from sinks.elasticsearch.index import Indices
from sinks.elasticsearch.settings import read_settings

LIMITS = {
    "Limit of total fields [1000] has been exceeded": ("index.mapping.total_fields.limit", 2000),
    "Limit of total fields [1000] in index [flight_g1] has been exceeded": ("index.mapping.total_fields.limit", 2000),
    "Limit of nested fields [50] has been exceeded": ("index.mapping.nested_fields.limit", 100),
    "Limit of mapping depth [20] has been exceeded due to object field [a]": ("index.mapping.depth.limit", 40),
}


def refused(reason: str, *, there: bool, properties: dict[str, Any] | None = None) -> SinkRefused:
    """What is told of an index whose mapping is refused, as it is made or changed."""
    settings = read_settings(
        {"type": "elasticsearch", "name": "search", "url": "http://h:9200", "targets": {"flight": {}}}
    )
    (target,) = settings.targets.values()

    def refuse(**_: Any) -> None:
        meta = ApiResponseMeta(400, "1.1", HttpHeaders(), 0.0, NodeConfig("http", "h", 1))
        raise BadRequestError("m", meta, {"error": {"type": "illegal_argument_exception", "reason": reason}})

    indices = Indices(
        cast(
            Any, SimpleNamespace(indices=SimpleNamespace(put_mapping=refuse, create=refuse, exists=lambda **_: there))
        ),
        settings,
        cast(Any, None),
    )
    indices._check_owner = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(SinkRefused) as caught:
        indices._ensure(target, target.concrete, {}, {}, {"dynamic": False, "properties": properties or {}})
    return caught.value


@pytest.mark.parametrize("there", [True, False], ids=["changed", "made"])
@pytest.mark.parametrize(("reason", "setting"), LIMITS.items(), ids=[name for name, _ in LIMITS.values()])
def test_a_limit_is_told_with_the_setting_that_raises_it(reason: str, setting: tuple[str, int], there: bool) -> None:
    """It read 'a field's type can't be changed', and named `rebuild`, which was refused in the same words."""
    error = refused(reason, there=there)
    (said,) = re.findall(r"`settings: (\{.*?\})`", error.fix)
    assert mapping.flatten(yaml.safe_load(said)) == dict([setting])
    assert reason in error.what and "field's type" not in str(error)
    assert error.fix.index("settings:") < error.fix.index("`headwater apply FILE`")
    assert ("PUT flight_g1/_settings" in error.fix) is there


TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword"}}}
# 2,501 fields, two of which are objects, and one of these by its name alone.
MANY = {f"f{n}": TEXT for n in range(1_248)} | {"o": {"properties": {"p": {"type": "long"}}}, "d.a": {"type": "long"}}
MANY["d.b"] = {"type": "long"}
DEEP: dict[str, Any] = {"type": "long"}
for _ in range(44):
    DEEP = {"properties": {"o": DEEP}}


@pytest.mark.parametrize("there", [True, False], ids=["changed", "made"])
@pytest.mark.parametrize(
    ("reason", "properties", "setting"),
    [
        ("Limit of total fields [1000] has been exceeded", MANY, "total_fields.limit: 4000"),
        ("Limit of total fields [2501] has been exceeded", MANY, "total_fields.limit: 5002"),
        ("Limit of total fields [2500] has been exceeded", MANY, "total_fields.limit: 7500"),
        (
            "Limit of nested fields [50] has been exceeded",
            {f"n{n}": {"type": "nested", "properties": {"m": {"type": "nested"}}} for n in range(60)},
            "nested_fields.limit: 200",
        ),
        ("Limit of nested fields [0] has been exceeded", {"n": {"type": "nested"}}, "nested_fields.limit: 2"),
        ("Limit of mapping depth [20] has been exceeded due to object field [a]", {"o": DEEP}, "depth.limit: 80"),
    ],
)
def test_the_number_that_is_told_is_enough(reason: str, properties: dict[str, Any], setting: str, there: bool) -> None:
    """It was twice the limit: for 2,500 fields `apply` was sent round twice. What is in the index has room, too."""
    assert f"{{index.mapping.{setting}}}" in refused(reason, there=there, properties=properties).fix


@pytest.mark.parametrize(
    ("there", "says"), [(True, "`headwater rebuild FILE search --auto`"), (False, "correct `mapping:`")]
)
def test_what_is_refused_for_something_else_is_told_as_before(there: bool, says: str) -> None:
    assert refused("mapper [n] cannot be changed from type [text] to [long]", there=there).fix.startswith(says)
