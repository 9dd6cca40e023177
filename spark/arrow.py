"""Our Python in Spark's plans: a function that batches of Arrow go through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str | T.StructType,
) -> DataFrame:
    """``DataFrame.mapInArrow`` as it is in Spark 4.1, except that it does not ask for pandas, which it does not use.

    Args:
        frame: any, a streaming one too.
        function: batches of its columns in, batches of ``schema`` out; once a task.
        schema: of what comes out.
    """
    made: Any = functions
    stage = made.vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    mapped = frame._jdf.mapInArrow(stage(*[frame[name] for name in frame.columns])._jc, False, None)
    return DataFrame(mapped, frame.sparkSession)
