"""Dead letters of what was repaired: what was refused once and is written now is none any more."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.errors import HeadwaterError
from cdc.pipeline import Pipeline
from cdc.saying import Say
from cdc.view import View
from operations.opened import Opened
from operations.verify.buckets import Keys
from operations.verify.comparison import unmarked
from operations.verify.settle import PAGE


def clear_letters(pipeline: Pipeline, build: Opened, view: View, written: Keys, left: Sequence[Keys], say: Say) -> None:
    """Forget them.

    Args:
        pipeline: the loaded file.
        build: the generation that was repaired.
        view: the view.
        written: keys that were to be written.
        left: those among them that were not.
        say: told why the letters are left, where they are.
    """
    from cdc.log.forgotten import forget_written

    one_by_one = (
        (unmarked(key)[1] for keys in several for page in keys.pages(PAGE) for key in page)
        for several in ((written,), left)
    )
    try:
        forget_written(pipeline, build.sink, build.number, view.name, *one_by_one)
    except HeadwaterError as error:
        say(f"  {build.sink}: dead letters of what was repaired are left: {error.what}")
