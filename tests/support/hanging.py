"""Stands in for what is built in a process of its own and takes long. Imports little: each test starts several."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def hangs(_say: Callable[[str], None], _file: Any, _sink: str, key: str, _view: str | None, _whole: bool) -> bytes:
    """As one that reads for long: the key is where it leaves its number."""
    Path(f"{key}.new").write_text(str(os.getpid()))
    Path(f"{key}.new").rename(key)
    time.sleep(60)
    return b""
