"""What becomes of an application's writes whose pipeline was dropped, or not applied yet."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# What is committed stays, the transaction that had failed is an error as ever, and there is no token of any.
GONE = {
    "said": {
        "in_a_transaction": "written",
        "after_it": "written",
        "by_hand": "written",
        "in_one_that_has_failed": "TransactionManagementError",
    },
    "rows": [1, 2, 3, 4],
    "tokens": 0,
}


def after_django(database: dict[str, str]) -> tuple[Any, str]:
    """What Django's writes came to, and what was logged; in a process of its own: its settings are for ever."""
    command = [sys.executable, "-m", "tests.support.django_gone", json.dumps(database)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr
