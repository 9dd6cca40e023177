"""Runs test files; what came of each test, as data."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, HeadwaterError
from cdc.gather import Gathering
from cdc.letters.deadletter import DeadLetter
from cdc.pipeline import Pipeline, load
from cdc.resolve.joins import NO_CONSTRAINT
from cdc.saying import Say
from cdc.scratch import scratch_folder
from operations.explain.differences import ABSENT, differences
from operations.testing.cases import Case, Expected, Result, Wrong
from operations.testing.files import files_of, read_file
from operations.testing.shapes import saved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.view import View

NOTHING, SOMETHING = "no document", "a document"
# In the place of a variable that is not set: views need neither addresses nor passwords.
UNSET = "unset"
# What else may be done about a key that a table of a test file does not have.
IN_A_TEST = (
    "; of a table that the test file gives in words, name it there: `unique: [[COLUMN, …]]`; or take the database's own"
    " shapes: `headwater test FILE --save-catalogue PATH`, and `catalogue: PATH` in the test file"
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def load_views(file: Path) -> Pipeline:
    """A pipeline file for its views: variables without a default need not be set.

    Raises:
        PipelineFileError: as ``cdc.pipeline.load`` (terminal).
    """
    try:
        named = _VARIABLE.findall(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        named = []  # `load` says what is wrong with it
    return load(file, {**dict.fromkeys(named, UNSET), **os.environ})


def report_of(file: Path, named: Sequence[Path], match: str, say: Say) -> dict[str, Any]:
    """Run tests; the shape of ``--json``.

    Args:
        file: the pipeline file.
        named: test files; none for ``tests/*.yaml`` beside it.
        match: only tests whose name has this in it, whatever its case.
        say: told when something takes seconds.

    Raises:
        PipelineFileError: a file is wrong: nothing was run (terminal).
        ConfigError: there is no such test, or a view does not fit the tables (terminal).
    """
    started = time.monotonic()
    pipeline = load_views(file)
    results = run(pipeline, files_of(file, named), match, say)
    return {
        "pipeline": pipeline.name,
        "seconds": round(time.monotonic() - started, 3),
        "passed": sum(not one.wrong for one in results),
        "failed": sum(bool(one.wrong) for one in results),
        "tests": [_told(one) for one in results],
    }


def run(pipeline: Pipeline, files: Sequence[Path], match: str, say: Say) -> list[Result]:
    """The tests of these files, one after the other; arguments and errors as ``report_of``."""
    found, read = Gathering(), list[tuple[Catalogue, list[Case]]]()
    for path in files:
        with found.step():
            read.append(read_file(path, pipeline))
    found.end()
    wanted = [(known, [case for case in cases if match.lower() in case.name.lower()]) for known, cases in read]
    if not any(cases for _, cases in wanted):
        names = ", ".join(case.name for _, cases in read for case in cases)
        raise ConfigError(f"no test has {match!r} in its name", fix=f"there are: {names}")
    with _Sparks(pipeline, say) as sparks:
        return [result for known, cases in wanted if cases for result in _of_file(pipeline, known, cases, sparks)]


class _Sparks(ExitStack):
    """A Spark session that is started when it is first asked for."""

    def __init__(self, pipeline: Pipeline, say: Say) -> None:
        super().__init__()
        self._pipeline, self._say = pipeline, say
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        from operations.gate import analyser

        if self._session is None:
            self._say("starting Spark for views with Spark SQL")
            folder = self.enter_context(scratch_folder("headwater-test-"))
            # Nothing is left beside the file: a check of a pull request has no state.
            engine = self._pipeline.engine.model_copy(update={"state_dir": str(folder)})
            self._session = self.enter_context(analyser(self._pipeline.model_copy(update={"engine": engine})))
        return self._session


def _of_file(pipeline: Pipeline, known: Catalogue, cases: Sequence[Case], sparks: _Sparks) -> list[Result]:
    from operations.testing.engine import prepared

    found, views = Gathering(), dict[str, "View"]()
    for name in dict.fromkeys(view for case in cases for view in case.views):
        with found.step():
            views[name] = prepared(pipeline, known, name, sparks)
    for error in found.wrong:
        if error.fix.endswith(NO_CONSTRAINT):
            error.fix += IN_A_TEST
    found.end()
    return [_result(pipeline, views, case, sparks) for case in cases]


def _result(pipeline: Pipeline, views: Mapping[str, View], case: Case, sparks: _Sparks) -> Result:
    from operations.testing.engine import Tested
    from operations.testing.records import batches_of

    started, result = time.monotonic(), Result(case)
    batches = batches_of(case, pipeline)
    for name in case.views:
        tested = Tested(pipeline, views[name], sparks)
        for records in batches:
            tested.apply(records)
        for expected in (one for one in case.expected if one.view == name):
            root = views[name].table.qualified
            result.wrong += compared(expected, tested.documents, tested.letters, root)
        result.letters += [f"{letter.view or name} {letter.key}: {letter.reason}" for letter in tested.letters]
    result.seconds = round(time.monotonic() - started, 3)
    return result


def compared(
    expected: Expected, documents: Mapping[str, bytes], letters: Sequence[DeadLetter], root: str | None = None
) -> list[Wrong]:
    """What of one document is not as expected. Pure.

    Args:
        expected: the document.
        documents: those that stand, by id.
        letters: what could not be applied.
        root: the view's root table: another table's row is no document.
    """
    wrong, there = partial(Wrong, expected), documents.get(expected.key)
    if expected.letter is not None:
        reasons = [one.reason for one in letters if one.key == expected.key and one.table in (None, root)]
        said = [] if any(expected.letter in reason for reason in reasons) else [wrong("", reasons, expected.letter)]
        return said if there is None else [*said, wrong("", SOMETHING, NOTHING)]
    if expected.document is None:
        return [] if there is None else [wrong("", orjson.loads(there), NOTHING)]
    if there is None:
        others = ", ".join(sorted(documents)[:5]) or "none"
        return [wrong("", f"{NOTHING} (the view has {others})", SOMETHING)]
    found = differences(_normal(orjson.loads(there)), _normal(expected.document))
    return [wrong(one.field, _side(one.left), _side(one.right)) for one in found]


def _side(value: Any) -> Any:
    return "nothing" if value is ABSENT else value


def _normal(value: Any) -> Any:
    """A JSON value of which 1 and 1.0 are one number."""
    if isinstance(value, Mapping):
        return {name: _normal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _told(one: Result) -> dict[str, Any]:
    return {
        "name": one.case.name,
        "file": str(one.case.file),
        "line": one.case.line,
        "passed": not one.wrong,
        "seconds": one.seconds,
        "differences": [
            {
                "view": wrong.expected.view,
                "key": wrong.expected.key,
                "line": wrong.expected.line,
                "field": wrong.field,
                "actual": wrong.is_,
                "expected": wrong.wanted,
            }
            for wrong in one.wrong
        ],
        "dead_letters": one.letters,
    }


def save_catalogue(file: Path, path: Path) -> int:
    """Write the captured tables' shapes for test files, as they are in the database now; how many there are.

    Raises:
        SourceError: Postgres does not answer, or refuses, or a table is not there.
    """
    from operations.gate import tables_of

    catalogue = tables_of(load(file), all_of_them=True)
    try:
        path.write_text(saved(catalogue), encoding="utf-8")
    except OSError as error:
        raise HeadwaterError(f"{path} can't be written: {error.strerror}") from error
    return len(catalogue.tables)
