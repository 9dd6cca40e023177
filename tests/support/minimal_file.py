"""The least that a pipeline file may be, and what is wrong with one."""

from __future__ import annotations

import pytest

from cdc.errors import PipelineFileError
from cdc.pipeline import loads

MINIMAL = """\
version: 1
name: shop
source:
  database: shop
  user: headwater
  password: ${PW}
  tables: [public.customers, public.orders]
kafka:
  bootstrap: localhost:9092
connect:
  url: http://localhost:8083
views:
  customer:
    root: customers
sinks:
  search:
    type: elasticsearch
    url: http://localhost:9200
    view: customer
"""
ENV = {"PW": "hunter2!secret"}


def bad(text: str | bytes, **env: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        loads(text, "p.yaml", ENV | env)
    return str(caught.value)
