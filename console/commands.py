"""Commands in texts, for every door that shows them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def with_file(text: str, file: str | Path) -> str:
    """What a text tells to call, with the pipeline file in the place of ``FILE``: to be copied as it is. Pure."""
    named = shlex.quote(str(file))
    return re.sub("`headwater [^`]*`", lambda command: re.sub(r"\bFILE\b", lambda _: named, command[0]), text)
