"""The Python worker daemon that Spark starts on every executor (``spark.python.daemon.module``).

Spark asks every task to call ``importlib.invalidate_caches()``, which makes each zip or jar on ``sys.path`` read its
directory again; PySpark's launcher puts pyspark.zip and the whole spark-core jar there although the installed package
serves. Dropping them took about 150 ms off every micro-batch (found by sampling a worker), more than all our own work.
"""

import gc
import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
for _entry in [entry for entry in sys.path_importer_cache if ".zip" in entry or ".jar" in entry]:
    del sys.path_importer_cache[_entry]

# ruff: noqa: E402, F401 (the path must be clean first, and what is imported is only to be there)
from cdc.lean import without_pandas

without_pandas()  # a pipeline's own functions are SQL: nobody's Python that could want it runs here

from pyspark.daemon import manager

# Loaded here, once: a worker is forked for each task slot and flow, and would import all of it again.
import sinks.elasticsearch
import sinks.redis
import spark.join.later
import spark.warehouse.merge
import spark.write

if __name__ == "__main__":
    # Forked workers share what is loaded by now; without this each full collection walks (and so copies) all of it.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
