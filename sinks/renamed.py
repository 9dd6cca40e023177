"""A sink that the file calls otherwise is another sink: what it wrote under its former name is not its own any more."""

from __future__ import annotations


def former(name: str) -> str:
    """The way back for who has only renamed a sink, where what it wrote is in the way of the new one.

    Args:
        name: of the sink that has written it, of the same pipeline.
    """
    return (
        f"another name is another sink: if this one was called `{name}` before, call it so again, then `headwater apply"
        " FILE`, and it goes on"
    )
