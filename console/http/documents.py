"""What rows and documents are asked for: letters, differences, explain, preview; and what a file would change.

Each answers as the command line's ``--json``. What rows hold is told to who may operate, and only when asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from anyio import from_thread
from fastapi import APIRouter, Depends, Query, Request

from cdc.errors import HeadwaterError, Refused, TooManyWaits
from cdc.pipeline import Pipeline, load
from cdc.saying import Say
from console.http.reports import LONGEST_KEY, Asked, Written, with_digits
from console.http.served import Served
from operations.child_process import Apart
from operations.explain.hidden import without_values
from operations.explain.report import explain_report
from operations.letters.listing import LIMIT, letter_report, letters_report
from operations.letters.wanted import Wanted, moment
from operations.plan import plan
from operations.run.machines import alone
from operations.state.verified import last_verified

router = APIRouter()
T = TypeVar("T")
LONGEST = 500
# So many may have a process, and a Spark, of their own at once, and for so long. Between two looks whether who asked is
# still there.
AT_ONCE, LONGEST_SECONDS, LOOK_SECONDS = 2, 600.0, 0.25
_ROOM = threading.BoundedSemaphore(AT_ONCE)
Name = Annotated[str | None, Query(max_length=LONGEST)]
Names = Annotated[tuple[Annotated[str, Query(max_length=LONGEST)], ...], Query(description="May be repeated.")]
Keys = Annotated[tuple[Annotated[str, Query(max_length=LONGEST_KEY)], ...], Query(description="May be repeated.")]
Values = Annotated[bool, Query(description="Also what rows hold; only for who may operate.")]


def sees(request: Request, *, values: bool) -> bool:
    """Whether what rows hold is told: it was asked for, by a role that may."""
    return values and request.state.role == "operate"


def wanted(
    request: Request,
    sink: Names = (),
    view: Names = (),
    table: Names = (),
    key: Keys = (),
    cause: Annotated[str | None, Query(max_length=1_000, description="A regular expression, of RE2.")] = None,
    since: Annotated[str | None, Query(max_length=50, description="30m, 2h, 7d ago, or a date or time.")] = None,
    generation: Annotated[int | None, Query(ge=1, description="Of one sink; else the one that readers see.")] = None,
) -> Wanted:
    """Which letters are meant, by what who asks may be told of them: who may operate finds what a job would forget."""
    at = None if since is None else moment(since)
    return Wanted(sink, view, table, key, cause, at, generation, whole=request.state.role == "operate")


Meant = Annotated[Wanted, Depends(wanted)]


@router.get("/v1/letters")
def letters(
    request: Request,
    asked: Asked,
    meant: Meant,
    each: Annotated[int, Query(ge=0, le=10_000, description="So many are told one by one too, the newest.")] = LIMIT,
    values: Values = False,
) -> dict[str, Any]:
    """As `headwater letters list --json`: the letters that stand, by cause. Asks Kafka and the sinks."""
    return letters_report(asked.pipeline, meant, values=sees(request, values=values), each=each)


@router.get("/v1/letters/show", response_model=dict[str, Any])
def letter(request: Request, asked: Asked, meant: Meant, values: Values = False) -> Written:
    """As `headwater letters show --json`: letters with their records and documents, 20 at the most."""
    return Written(with_digits(letter_report(asked.pipeline, meant, values=sees(request, values=values))))


@router.get("/v1/differences")
def differences(asked: Asked) -> dict[str, Any]:
    """What the last verification of each sink has found, without what rows hold; asks no server."""
    return last_verified(asked.pipeline)


@router.get("/v1/explain", response_model=dict[str, Any])
def explain(
    request: Request,
    asked: Asked,
    sink: Annotated[str, Query(max_length=LONGEST)],
    key: Annotated[str, Query(max_length=LONGEST_KEY)],
    view: Name = None,
    expected: Annotated[bool, Query(description="Also build it from Postgres; may start Spark.")] = False,
    values: Values = False,
) -> Written:
    """As `headwater explain --json`: why a document looks as it does."""
    named, whole = (sink, key, view), sees(request, values=values)
    if expected:
        return Written(_apart(request, asked, explained, *named, whole))
    return Written(_explained(explain_report(asked.pipeline, *named), whole=whole))


@router.get("/v1/preview", response_model=dict[str, Any])
def preview(
    request: Request,
    asked: Asked,
    view: Annotated[str, Query(max_length=LONGEST)],
    key: Annotated[str | None, Query(max_length=LONGEST_KEY)] = None,
    where: Annotated[str | None, Query(max_length=10_000, description="SQL over the root's columns.")] = None,
    sample: Annotated[int, Query(ge=1, le=1_000)] = 5,
    diff: Annotated[bool, Query(description="What differs from what the sink's readers see.")] = False,
    sink: Name = None,
) -> Written:
    """As `headwater preview --json`, or `preview --diff --json`; it is all values, so only for who may operate."""
    if request.state.role != "operate":
        raise Refused("a preview shows what rows hold: this token may not see that", fix="use one that may operate")
    return Written(_apart(request, asked, previewed, view, (key, where, sample), sink, diff))


@router.get("/v1/plan")
def planned(asked: Asked) -> dict[str, Any]:
    """As `headwater plan --json`: what `apply` would change. Changes nothing; asks all servers."""
    return plan(asked.pipeline).to_dict()


# -- what may start Spark: in a process of its own, which ends with it -------------------------------------------------


def _apart(request: Request, asked: Served, step: Callable[..., T], *arguments: Any) -> T:
    if not _ROOM.acquire(blocking=False):
        what = f"{AT_ONCE} previews or explanations are being built at this server, each by a Spark of its own"
        raise TooManyWaits(what, means="nothing was begun", fix="ask again when they have ended")
    try:
        with Apart(step, asked.file, *arguments) as process:
            until = time.monotonic() + LONGEST_SECONDS
            while not process.ended(LOOK_SECONDS):
                if time.monotonic() > until:
                    what = f"it was not built within {LONGEST_SECONDS / 60:.0f} minutes"
                    raise HeadwaterError(what, fix="ask for fewer rows, or on the command line, which waits longer")
                # Who asked may have asked again by then: what nobody reads any more keeps no place.
                if request.app.state.leaving() or from_thread.run(request.is_disconnected):
                    raise HeadwaterError("nobody waits for it any more")
            return process.result()
    finally:
        _ROOM.release()


def explained(say: Say, file: Any, sink: str, key: str, view: str | None, whole: bool) -> bytes:
    """The other process's part of ``explain``, written: as of ``previewed``."""
    return _explained(explain_report(_loaded(file), sink, key, view, expected=True, progress=say), whole=whole)


def _explained(report: dict[str, Any], *, whole: bool) -> bytes:
    return with_digits(report if whole else without_values(report))


def previewed(say: Say, file: Any, view: str, which: tuple[Any, ...], sink: str | None, diff: bool) -> bytes:
    """The other process's part of ``preview``, written: a number with more digits than a double is not pickled."""
    from operations.preview.asked import Asked as Rows
    from operations.preview.diff import diff_report
    from operations.preview.previewer import Previewer

    with Previewer(say) as previewer:
        if diff:
            return with_digits(diff_report(previewer, _loaded(file), view, Rows(*which), sink))
        return with_digits(previewer.report(_loaded(file), view, Rows(*which)))


def _loaded(file: Any) -> Pipeline:
    return alone(load(file), None)
