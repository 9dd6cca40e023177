"""``headwater``, and ``python -m console.cli``: the command as a process of its own."""

from __future__ import annotations

from cdc.lean import without_pandas
from console.cli.main import main


def command_line() -> None:
    """As ``main``, in a process that is nobody else's: it can do without what others may need."""
    without_pandas()
    main()


if __name__ == "__main__":
    command_line()
