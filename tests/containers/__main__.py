"""``make test-containers``: tests of the integration suite, unchanged, with every server in a container of our own.

Without a Docker engine that runs or can be started here it says SKIPPED and ends with exit code 0.
"""

from __future__ import annotations

import os
import sys

import pytest

from cdc.errors import HeadwaterError
from deploy.images import base
from deploy.images.build import build
from deploy.images.catalog import IMAGES
from deploy.images.engine import NoEngine, engine
from deploy.local.site import Site
from tests.support.servers import CHOICE

# The sinks' contract, the way in, both formats, and whole flows from a commit to every sink, killed in the middle too.
KILLS = "tests/faults/test_kill_during_load.py"
SUITE = (
    "tests/containers",
    "tests/integration/test_sink_contract.py",
    f"{KILLS}::test_nothing_killed",
    f"{KILLS}::test_fault_03_spark_is_killed",
    f"{KILLS}::test_fault_16_a_server_is_killed",
    "tests/integration/test_codec_real.py",
    "tests/integration/test_connectors_apply.py",
)
# Beside the local stack, not on it.
PORT_BASE = "23000"


def main(arguments: list[str]) -> int:
    """Run the suite, or what the arguments name; pytest's exit code."""
    os.environ[CHOICE] = "containers"
    os.environ.setdefault("HEADWATER_PORT_BASE", PORT_BASE)
    try:
        with engine(Site.find().home / "logs" / "dockerd.log", say):
            build([name for name in IMAGES if name != "headwater"], base.ensure(say), say)
            return int(
                pytest.main([*arguments, *SUITE] if all(one.startswith("-") for one in arguments) else arguments)
            )
    except NoEngine as none:
        print(f"\n{'*' * 100}\nSKIPPED: nothing was tested, for there is no Docker engine.\n{none}\n{'*' * 100}")
        return 0
    except HeadwaterError as error:
        print(f"error [{error.code}]: {error}")
        return 1


def say(line: str) -> None:
    """Progress."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
