"""What is believed because it is there under its name has to be on the disk before it gets that name."""

from __future__ import annotations

import os
from pathlib import Path


def rename(made: Path, target: Path) -> None:
    """Give a finished file, or folder, its name; once its content outlives a power cut.

    A file system may keep the new name and lose the bytes that were written before: that would be an empty jar or
    program which nobody looks at again.

    Args:
        made: what is complete, beside ``target``.
        target: its name from now on; a file that has it is replaced.

    Raises:
        OSError: there is no room, or the disk has errors.
    """
    if made.is_dir():
        os.sync()  # quicker than thousands of files one by one; once for each unit that is fetched
    else:
        with made.open("rb") as written:
            os.fsync(written.fileno())
    made.replace(target)
