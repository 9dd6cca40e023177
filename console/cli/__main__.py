"""``python -m console.cli``: the ``headwater`` command."""

from __future__ import annotations

from console.cli.main import main

if __name__ == "__main__":
    main()
