"""Avro values made JSON in the virtual machine, before Python sees them (deploy/spark/AvroText.java).

Python reads Debezium's Avro at a third of the rate of its JSON, and Spark's own functions read none of it. What is not
certainly an event of a schema that the registry gives comes through as it was, and the codec judges it
(cdc/records/debezium_avro.py). docs/decisions/avro.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def values_as_text(records: DataFrame, registry: Mapping[str, str]) -> DataFrame:
    """Records whose values are JSON wherever they are Avro that can be read.

    Args:
        records: with a column ``value``; the session has our jar.
        registry: settings of the schema registry: ``url``, and ``user`` and ``password`` where it asks for them.
    """
    spark = records.sparkSession
    # A session keeps a function by its name: pipelines of one process may have registries of their own.
    told = "\n".join(registry.get(part, "") for part in ("url", "user", "password"))
    name = f"headwater_avro_text_{hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}"
    jvm: Any = spark._jvm
    java: Any = spark._jsparkSession
    secret = registry.get("user"), registry.get("password")
    try:
        jvm.headwater.spark.AvroText.register(java, name, registry["url"], *secret)
    except TypeError:  # a jar of before, in a folder of the operator's: Python reads Avro, as it did
        return records
    return records.withColumn("value", F.call_udf(name, F.col("value")))
