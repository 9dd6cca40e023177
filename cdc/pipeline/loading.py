"""From a file to a ``Pipeline``: read, parse, fill in variables, validate, check; every error with its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from cdc.errors import PipelineFileError
from cdc.pipeline.checks import check
from cdc.pipeline.document import MAX_BYTES, FileNode, SyntaxProblem, decode, parse
from cdc.pipeline.environment import substitute
from cdc.pipeline.messages import explain, place
from cdc.pipeline.models import Path as KeyPath
from cdc.pipeline.models import Pipeline
from cdc.pipeline.problems import Problem, report


def load(path: Path, env: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file.

    Args:
        path: a YAML file of at most 4 MiB, UTF-8.
        env: variables for ``${NAME}``; None for the process's environment.

    Raises:
        PipelineFileError: the file can't be read or is wrong; the message begins with ``file:line:column`` and names
            all that is wrong, at most 20 things (terminal).
    """
    return loads(read_pipeline(path), str(path), env)


def read_pipeline(path: Path) -> bytes:
    """A pipeline file's bytes, for ``loads``: for who must know what exactly was loaded.

    Raises:
        PipelineFileError: it can't be read (terminal).
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a file's name"
        raise PipelineFileError(
            f"{path}:1:1: the pipeline file can't be read: {reason}",
            fix="`headwater template > pipeline.yaml` writes a file to start from",
        ) from None


def loads(data: bytes | str, file: str = "pipeline.yaml", env: Mapping[str, str] | None = None) -> Pipeline:
    """As ``load``, from memory.

    Args:
        data: the text, or its bytes.
        file: its name, for messages.
        env: variables for ``${NAME}``; None for the process's environment.

    Raises:
        PipelineFileError: as ``load``.
    """
    try:
        root, problems = parse(decode(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")))
    except SyntaxProblem as error:
        raise report(file, [error.problem]) from None
    missing = substitute(root, os.environ if env is None else env)
    problems += missing
    pipeline: Pipeline | None = None
    try:
        pipeline = Pipeline.model_validate(root.plain())
    except ValidationError as error:
        # What a missing variable would have held is wrong only because of it.
        unknown = {problem.line for problem in missing}
        problems += [problem for problem in explain(error, Pipeline, root) if problem.line not in unknown]
    if pipeline is not None and not problems:
        pipeline.read_from(file, _places(root))
        problems += [Problem(*place(root, wrong.path), wrong.what, wrong.fix) for wrong in check(pipeline)]
    if pipeline is None or problems:
        raise report(file, problems) from None
    return pipeline


def _places(root: FileNode) -> dict[KeyPath, tuple[int, int]]:
    """Positions only: what stands there (secrets too) is not kept."""
    places: dict[KeyPath, tuple[int, int]] = {(): (1, 1)}

    def walk(node: FileNode, path: KeyPath) -> None:
        items = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
        for item, child in items:
            below = (*path, item)
            nested = isinstance(child.value, (dict, list))
            at = (child.line, child.column)
            places[below] = node.keys.get(str(item), at) if nested or child.value is None else at
            if nested:
                walk(child, below)

    walk(root, ())
    return places
