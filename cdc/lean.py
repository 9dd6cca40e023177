"""Packages that are installed and that a process does without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Without(MetaPathFinder):
    """Answers for some packages as Python does for one that is not installed."""

    def __init__(self, packages: frozenset[str]) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing, so that others are asked; but no others for a package that is done without.

        Raises:
            ModuleNotFoundError: it is one of these.
        """
        if fullname.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {fullname!r} (done without here)", name=fullname)
        return None


def without_pandas() -> None:
    """Let this process, from now on, do without pandas; nothing where it is loaded already.

    PyArrow loads it where it is installed as soon as it is first given a list, and Spark to see whether it was given a
    frame of it: a quarter of a second of a core and some 40 MiB in each process, for nothing that we use.
    """
    if "pandas" not in sys.modules and not any(isinstance(one, _Without) for one in sys.meta_path):
        sys.meta_path.insert(0, _Without(frozenset({"pandas"})))


__all__ = ["without_pandas"]
