"""Where a warehouse is: kinds of catalogues, keys from the environment, nothing that shows a secret."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from sinks.iceberg import catalogue as iceberg
from sinks.iceberg import storage
from sinks.iceberg.place import Place
from spark.machine.jars import require_s3

NAMES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
    "AWS_REGION", "AWS_DEFAULT_REGION",
)  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def bucket(**more: Any) -> Any:
    return SimpleNamespace(**{"catalog_uri": "c.db", "warehouse": "s3://lake/w", "namespace": "n", **more})


def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-1")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"),
        (("AWS_ACCESS_KEY_ID",), "AWS_SECRET_ACCESS_KEY is not set"),
        (("AWS_SECRET_ACCESS_KEY",), "AWS_ACCESS_KEY_ID is not set"),
    ],
)
def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], named: str) -> None:
    for name in given:
        monkeypatch.setenv(name, "s3cr3t-1")
    for properties in (iceberg.spark_properties, iceberg.pyiceberg_properties):
        with pytest.raises(ConfigError, match=named) as caught:
            properties(bucket(s3_endpoint="http://h:9000", catalog_uri="/nowhere/c.db" if given else "c.db"))
        assert "s3cr3t-1" not in str(caught.value)


def test_without_keys_aws_and_a_rest_catalogue_may_have_their_own_way() -> None:
    assert "s3.access-key-id" not in iceberg.pyiceberg_properties(bucket())
    rest = bucket(catalog_uri="https://h/api", s3_endpoint="http://h:9000")
    assert iceberg.spark_properties(rest)["header.X-Iceberg-Access-Delegation"] == "vended-credentials"


def test_a_server_of_its_own_gets_path_style_and_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://h:9000")
    spark, reader = iceberg.spark_properties(bucket()), iceberg.pyiceberg_properties(bucket())
    assert (spark["s3.endpoint"], spark["s3.path-style-access"], spark["client.region"]) == (
        "http://h:9000", "true", "us-east-1",
    )  # fmt: skip
    assert (reader["s3.endpoint"], reader["s3.force-virtual-addressing"]) == ("http://h:9000", "false")
    assert spark["s3.secret-access-key"] == reader["s3.secret-access-key"] == "s3cr3t-1"
    chosen = bucket(s3_endpoint="http://other", s3_region="eu-central-1", s3_path_style=False)
    assert iceberg.spark_properties(chosen)["s3.endpoint"] == "http://other"
    assert iceberg.spark_properties(chosen)["s3.path-style-access"] == "false"
    assert iceberg.pyiceberg_properties(chosen)["s3.region"] == "eu-central-1"


def test_a_rest_catalogue_by_its_address() -> None:
    sink = bucket(
        catalog_uri="https://h/api/",
        warehouse="/w",
        rest_warehouse="prod",
        credential=SecretStr("me:s3cr3t"),
        scope="x",
    )
    spark = iceberg.spark_properties(sink)
    assert spark["type"] == "rest" and "io-impl" not in spark
    for both in (spark, iceberg.pyiceberg_properties(sink)):
        assert (both["uri"], both["warehouse"], both["credential"], both["scope"]) == (
            "https://h/api", "prod", "me:s3cr3t", "x",
        )  # fmt: skip
        assert both["oauth2-server-uri"] == "https://h/api/v1/oauth/tokens"
    assert "s3cr3t" not in repr(Place.of(sink))


def test_a_folder_has_nothing_of_a_bucket_and_must_be_writable(tmp_path: Path) -> None:
    folder = bucket(catalog_uri=str(tmp_path / "a" / "c.db"), warehouse=str(tmp_path / "w"))
    assert not any(key.startswith(("s3.", "io-impl")) for key in iceberg.spark_properties(folder))
    iceberg.check(folder, "hw_x")
    assert not (tmp_path / "w").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkRefused, match="can't be made"):
        iceberg.check(bucket(catalog_uri=folder.catalog_uri, warehouse=str(tmp_path / "file" / "w")), "hw_x")


def test_a_folder_that_is_read_only_for_a_while_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk was made read-only for a minute, and the table stood still until `run` was started again."""
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(SinkUnavailable, match="can't be made or written to"):
        storage.check_folder(tmp_path / "w")


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("When x: AWS Error NO_SUCH_BUCKET during y", "sink-refused", "no bucket lake"),
        ("When x: AWS Error ACCESS_DENIED during y", "sink-refused", "refuses"),
        ("When x: AWS Error NETWORK_CONNECTION during y", "sink-unavailable", "does not answer"),
    ],
)
def test_what_the_s3_client_says_is_named(said: str, code: str, words: str) -> None:
    with pytest.raises(Exception, match=words) as caught, storage.named(Place.of(bucket())):
        raise OSError(said)
    assert getattr(caught.value, "code", "") == code


def test_the_client_of_s3_is_needed_for_a_bucket_alone(tmp_path: Path) -> None:
    assert iceberg.needs_s3(bucket()) and not iceberg.needs_s3(bucket(warehouse="/w"))
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match="--with s3"):
        require_s3(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "iceberg-aws-bundle-1.jar").write_text("")
    require_s3(Path(f"{tmp_path}/a:{tmp_path}/b"))


@pytest.mark.parametrize("attempt", range(4))
def test_a_new_catalogue_is_opened_by_several_at_once(tmp_path: Path, attempt: int) -> None:
    sink = SimpleNamespace(catalog_uri=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w"), namespace="n")
    together = threading.Barrier(8)

    def opened(_: int) -> list[Any]:
        together.wait()
        with iceberg.open_catalog(sink, "hw_x") as catalogue:
            return list(catalogue.list_namespaces())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(8))) == [[]] * 8
