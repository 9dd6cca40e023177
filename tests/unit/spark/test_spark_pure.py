"""Small pure parts of the engine: options, statements, explanations, comparing, measurements."""

import tempfile
from pathlib import Path

import orjson
import pytest

from benchmarks.results import Measurement, quantile, write
from cdc.errors import ConfigError
from cdc.log.ends import reached
from spark.disk import temporary
from spark.failures import explain
from spark.machine import session
from spark.machine.jars import find_jars
from spark.reading.source import _options
from spark.warehouse.merge import merge_statement
from truth.digest import digest


def test_a_topic_that_is_read_is_not_made_by_reading_it() -> None:
    options = _options("127.0.0.1:1", ["p.public.t"], {}, 1)
    assert options["kafka.allow.auto.create.topics"] == "false"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(temporary, "_OWN", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary.atexit, "register", lambda *_: None)
    monkeypatch.delenv(temporary.VARIABLE, raising=False)
    return tmp_path


def test_a_folder_that_cannot_be_made_is_left_to_spark_to_name(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: (places / "gone" / "x").mkdir())
    assert temporary.options({}) == ("", {}, {})


def test_sparks_files_lie_where_the_operator_says(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blank = places / "a b"
    java, settings, environment = temporary.options({"spark.local.dir": f"{blank}, {places}/c"})
    mine = temporary.own(places)
    assert java == f' "-Djava.io.tmpdir={mine}"' and environment == {}
    assert settings["spark.local.dir"] == f"{temporary.own(blank)},{temporary.own(places / 'c')}"
    assert temporary.places() == [mine, temporary.own(blank), temporary.own(places / "c")]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(blank))
    _, settings, environment = temporary.options({"spark.local.dir": "/nowhere"})
    assert environment == {"SPARK_LOCAL_DIRS": str(temporary.own(blank))} and "spark.local.dir" not in settings


@pytest.mark.parametrize("letters", [1, 30, 70])
def test_sockets_of_pythons_workers_have_paths_that_the_kernel_takes(
    places: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="p" * letters, dir="/tmp") as root:
        monkeypatch.setattr(tempfile, "tempdir", root)
        _, settings, _ = temporary.options({})
    assert settings == {1: {}, 30: {temporary.SOCKETS: root}, 70: {temporary.SOCKETS: "/tmp"}}[letters]


def test_a_clusters_executors_are_not_told_of_folders_of_the_drivers_machine(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, str]] = []

    def launch(settings: dict[str, str], *_: object) -> None:
        told.append(settings)
        raise InterruptedError

    monkeypatch.setattr(session, "_launch", launch)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")  # is set, and so is put back
    monkeypatch.setattr(tempfile, "tempdir", str(places / ("long" * 20)))
    (places / ("long" * 20)).mkdir()
    scratch = str(places / "scratch")
    for master in ("yarn", "local[1]"):
        with pytest.raises(InterruptedError):
            session.build_session("t", master=master, jars=None, log=places / "log", conf={temporary.SETTING: scratch})
    executors, here = ({name: one.get(name) for name in (temporary.SETTING, temporary.SOCKETS)} for one in told)
    assert executors == {temporary.SETTING: scratch, temporary.SOCKETS: None}
    assert here != executors and here[temporary.SOCKETS] is not None


def test_missing_jars_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="iceberg-spark-runtime"):
        find_jars(tmp_path)


def test_the_merge_never_lets_an_older_change_win() -> None:
    statement = merge_statement("c.n.t", ["id"], ["id", "v", "_hw_version"])
    assert statement.count("s._hw_version >= t._hw_version") == 2
    assert "s._hw_version = -1) THEN DELETE" in statement
    assert "NOT MATCHED AND NOT s._hw_gone" in statement


def test_our_own_error_is_found_in_a_long_trace() -> None:
    text = "Job aborted\n  File x\ncdc.errors.SinkUnavailable: sink 'search' does not answer\n\tat org.apache.spark"
    assert explain(text) == "sink 'search' does not answer"


def test_else_the_last_cause_is_told() -> None:
    assert explain("top\nCaused by: a.B: first\nCaused by: c.D: root\n") == "Caused by: c.D: root"
    assert explain("only this\nnext") == "only this"
    java = "py4j.protocol.Py4JJavaError: An error occurred.\n: a.CommitFailedException: moved\n\tat b"
    assert explain(java) == "a.CommitFailedException: moved"


def test_reached_needs_every_partition() -> None:
    assert reached({"t": {0: 5, 1: 3}}, {"t": {0: 5, 1: 3}})
    assert not reached({"t": {0: 5}}, {"t": {0: 5, 1: 3}})
    assert not reached({}, {"t": {0: 1}})


def test_equal_documents_are_equal_whatever_the_order_of_keys() -> None:
    assert digest(b'{"a":1,"b":[1,2]}') == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


def test_measurements_keep_what_was_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    write([Measurement("a", 1.0, "s", 1), Measurement("b", 2.0, "s", 1)], path)
    write([Measurement("b", 3.0, "s", 1, peer="raw", peer_value=6.0, ratio=0.5)], path)
    entries = {entry["name"]: entry for entry in orjson.loads(path.read_text())}
    assert (entries["a"]["value"], entries["b"]["value"], entries["b"]["ratio"]) == (1.0, 3.0, 0.5)
    assert set(entries["a"]) == {"name", "value", "unit", "peer", "peer_value", "ratio", "n", "command", "at"}


def test_quantiles_are_of_the_observations() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0], 0.99) == 1.0


def test_numbers_beyond_a_double_are_compared_by_their_text() -> None:
    assert digest(b'{"a":1e400}') == digest(b'{ "a": 1e400 }') != digest(b'{"a":1e401}')
    assert digest(b'{"a":123456789012345678901234567890}') == digest(b'{"a":123456789012345678901234567890}')
