"""These tests are about containers: without them there is nothing to collect."""

from __future__ import annotations

import os

from tests.support.servers import CHOICE

if os.environ.get(CHOICE) != "containers":
    collect_ignore_glob = ["test_*.py"]
