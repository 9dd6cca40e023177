"""How an error reads: what happened, what that means, and the way out, each on a line of its own.

Such a text outlives the error in status files, logs and notes. Whoever needs a part of it there takes it from here.
"""

from __future__ import annotations

# With which the lines below the first begin.
MEANS, TO_DO = "  what it means: ", "  what to do: "


def worded(what: str, *, means: str = "", fix: str = "") -> str:
    """The text of an error.

    Args:
        what: what happened, naming the thing.
        means: what that means for the user's data, if it is not obvious.
        fix: the way out, if there is one.
    """
    return "\n".join([what, *([MEANS + means] if means else ()), *([TO_DO + fix] if fix else ())])


def split(text: str | None) -> tuple[str, str]:
    """What happened and the way out, of a text of ``worded`` or of anybody else's.

    Args:
        text: None and an empty one say nothing.

    Returns:
        its first line, and its last way out: a text may have been put together of several.
    """
    lines = [line.strip() for line in (text or "").strip().splitlines()]
    label = TO_DO.strip()
    fixes = [line.removeprefix(label).strip() for line in lines if line.startswith(label)]
    return (lines[0] if lines else ""), (fixes[-1] if fixes else "")
