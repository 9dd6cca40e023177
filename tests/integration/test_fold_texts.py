"""A fold's state of which a text is not UTF-8, made into code as Step.java does it, without a session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import types as T

from cdc.fold import folded
from cdc.utf8 import whole
from deploy import compiled
from deploy.local.stack import LocalStack
from deploy.spark import build

PROGRAM = Path(__file__).parents[1] / "support" / "SqlCheck.java"
TEXT = T.StructType().add("s", T.StringType())
BOTH = T.StructType().add("s", T.StringType()).add("b", T.BinaryType())
FAILED = "failed: [INVALID_UTF8_STRING]"
Told = Callable[..., list[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What Spark SQL gives, expression by expression; of what fails the kind of the error."""
    java, folder = LocalStack().site.jdk.home / "bin", tmp_path_factory.mktemp("sql")
    compiled.build(str(java / "javac"), [PROGRAM], [build.spark_jars()], folder / "sql.jar")

    def said(*expressions: str) -> list[str]:
        (folder / "lines").write_text("\n".join(expressions))
        opened = ("java.base/java.nio=ALL-UNNAMED", "java.base/sun.nio.ch=ALL-UNNAMED")
        command = [str(java / "java"), *(f"--add-opens={one}" for one in opened), "-Dspark.testing=true"]
        command += ["-cp", f"{folder}/sql.jar:{build.spark_jars()}/*", "headwater.spark.SqlCheck", f"{folder}/lines"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line]
        return [line.partition("] ")[0] + "]" if line.startswith("failed: [") else line for line in lines]

    return said


def of(kind: T.StructType, step: str, *events: str) -> str:
    """The state after events, given in hex, as verification asks for it."""
    type_ = kind.simpleString()
    nothing = f"CAST(NULL AS {type_})"
    said = folded(step, nothing, type_, kind.jsonValue(), nothing)
    held = ", ".join(f"unhex('{event}')" for event in events)
    return said.replace("aggregate(events,", f"aggregate(array({held}),", 1)


def test_a_state_fails_at_the_event_that_makes_such_a_text(told: Told) -> None:
    cast = "named_struct('s', CAST(event AS string))"
    ends = f"CASE WHEN event = unhex('42') THEN NULL ELSE {cast} END"
    assert told(
        of(TEXT, cast, "41", "42"), of(TEXT, cast, "41", "C1"), of(TEXT, ends, "41", "42"),
        # The last event would hide it, if it came in one batch with the first.
        of(TEXT, cast, "C1", "42"),
    ) == ["{B}", FAILED, "NULL", FAILED]  # fmt: skip


def test_functions_that_stand_for_others_are_replaced(told: Told) -> None:
    inside = "element_at(transform(array(1), x -> nvl(x, 2)), 1)"
    assert told("nvl(NULL, 1)", "nullif(2, 2)", "3 BETWEEN 1 AND 2", inside) == ["1", "NULL", "false", "1"]


def test_bytes_beside_texts_are_let_be_and_the_texts_are_not(told: Told) -> None:
    well, ill = ("named_struct('s', 'x', 'b', event)", "named_struct('s', CAST(event AS string), 'b', event)")
    shown = f"hex(element_at(transform(array({of(BOTH, well, '41C1')}), one -> one.b), 1))"
    assert told(shown, of(BOTH, ill, "41C1")) == ["41C1", FAILED]


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (T.ArrayType(BOTH), "array(named_struct('s', {}, 'b', unhex('C1')))"),
        (T.MapType(T.StringType(), T.BinaryType()), "map({}, unhex('C1'))"),
        (T.MapType(T.IntegerType(), T.ArrayType(T.MapType(T.BinaryType(), T.StringType()))),
         "map(1, array(map(unhex('C1'), {})))"),
    ],
)  # fmt: skip
def test_texts_are_found_wherever_they_are(told: Told, kind: T.DataType, made: str) -> None:
    # In a lambda, as a fold's state is.
    def checked(text: str) -> str:
        return f"size(element_at(transform(array({made.format(text)}), made -> {whole('made', kind.jsonValue())}), 1))"

    assert told(checked("'x'"), checked("CAST(unhex('C1') AS string)")) == ["1", FAILED]
