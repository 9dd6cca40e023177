"""The pipeline file. (LEAD's stopgap: the PIPELINE helper may replace this whole package.)"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from cdc.errors import PipelineFileError
from cdc.pipeline.models import (
    Connect,
    ElasticsearchSink,
    Engine,
    IcebergSink,
    Kafka,
    Pipeline,
    Policy,
    RedisSink,
    Source,
    View,
)

_VAR = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)(?::-([^}]*))?\}")


def _fill(value: Any, env: Mapping[str, str], path: Path) -> Any:
    if isinstance(value, dict):
        return {k: _fill(v, env, path) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, env, path) for v in value]
    if isinstance(value, str):

        def one(found: re.Match[str]) -> str:
            got = env.get(found[1], found[2])
            if got is None:
                raise PipelineFileError(f"{path}:1:1: environment variable {found[1]} is not set")
            return got

        return _VAR.sub(one, value)
    return value


def load(path: Path, env: Mapping[str, str] | None = None) -> Pipeline:
    try:
        raw = YAML(typ="safe").load(path.read_text())
        return Pipeline.model_validate(_fill(raw, os.environ if env is None else env, path))
    except PipelineFileError:
        raise
    except Exception as error:
        raise PipelineFileError(f"{path}:1:1: {error}") from error


__all__ = [
    "Connect",
    "ElasticsearchSink",
    "Engine",
    "IcebergSink",
    "Kafka",
    "Pipeline",
    "Policy",
    "RedisSink",
    "Source",
    "View",
    "load",
]
