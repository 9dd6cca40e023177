"""A client that is killed between its two writes: started by ``load.run_crash``, which sends SIGKILL on "committed"."""

from __future__ import annotations

import sys

from examples.dual_writes.load import CRASHES, commit, publish
from examples.dual_writes.names import BY_HAND_INDEX, BY_HAND_PREFIX
from examples.dual_writes.stores import Stores


def main(number: int, mode: str) -> None:
    """Commit write ``number`` of ``CRASHES``, say so, and go on to the stores when somebody answers: nobody will."""
    stores = Stores.connect(BY_HAND_INDEX, BY_HAND_PREFIX) if mode == "by-hand" else None
    write, _ = CRASHES[number]
    row = commit(sys.stdin.readline().strip(), write)
    print("committed", flush=True)
    sys.stdin.readline()
    publish(stores, write, row)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
