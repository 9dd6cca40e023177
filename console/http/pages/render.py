"""Makes pages of templates: everything is escaped, nothing is asked of a server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from cdc.ages import at_least
from cdc.errors import ConfigError
from console.commands import with_file

HTTP = Path(__file__).parents[1]
STATIC = HTTP / "static"
MIB = 2**20
# A key may be as long as a row: in a table it stands beside what says why it was refused.
LONGEST_SHOWN = 60


def count(number: float | None) -> str:
    """``336,776``; a question mark where it is not known."""
    return "?" if number is None else f"{number:,.0f}"


def span(seconds: float | None) -> str:
    """``0.4 s``, ``12 s``, ``3 min``, ``2.5 h``, ``4 d``, ``1,000 d``."""
    if seconds is None:
        return "?"
    for least, size, unit in ((172_800, 86_400, "d"), (5_400, 3_600, "h"), (120, 60, "min")):
        if seconds >= least:
            units = seconds / size
            return f"{units:,.0f} {unit}" if units >= 100 else f"{units:.3g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def rate(number: float | None) -> str:
    """``12,000/s``."""
    if number is None:
        return "?"
    return f"{number:,.0f}/s" if number >= 10 or number == 0 else f"{number:.1f}/s"


def size(number: int | None) -> str:
    """``12 MiB``."""
    if number is None:
        return "?"
    if number < MIB:
        return f"{number / 1024:.0f} KiB"
    return f"{number / MIB:,.0f} MiB" if number < 1024 * MIB else f"{number / (1024 * MIB):,.1f} GiB"


def moment(epoch: float | None) -> str:
    """``2026-11-21 10:00:00 UTC``."""
    return "" if not epoch else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch))


def clock(epoch: float | None) -> str:
    """``10:00:00``, in UTC: of what is minutes old."""
    return "" if not epoch else time.strftime("%H:%M:%S", time.gmtime(epoch))


def pretty(value: Any) -> str:
    """JSON to be read by people: every letter as it is, and every digit (``truth.values.exact``). A page's own escaping
    keeps it text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a number of more than 64 bits, half a surrogate pair
        return json.dumps(value, indent=2, sort_keys=True, default=str)


def short(text: str) -> str:
    """The beginning of a text that stands among others."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


@pass_context
def said(context: Context | Mapping[str, Any], text: str | None) -> Markup:
    """A text of ours with its commands as such: to be copied as they are, with the pipeline's file in their place."""
    file = context.get("file")
    parts = (text or "" if file is None else with_file(text or "", file)).split("`")
    if len(parts) % 2 == 0:  # a sign that somebody else's words have
        return escape("`".join(parts))
    pieces = [Markup("<code>{}</code>").format(one) if at % 2 else escape(one) for at, one in enumerate(parts)]
    return Markup("").join(pieces)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HTTP / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "count": count,
        "span": span,
        "rate": rate,
        "size": size,
        "at_least": at_least,
        "moment": moment,
        "clock": clock,
        "pattern": re.escape,
        "pretty": pretty,
        "short": short,
        "said": said,
    }
    for name in made.list_templates():  # compiled now, and not while the first who asks waits
        made.get_template(name)
    return made


ENVIRONMENT = _environment()


def _file(request: Request, pipeline: str | None) -> Path | None:
    """Of the pipeline that a page is about; None where it is about none, or of no one file."""
    pipelines = request.app.state.pipelines
    try:
        file: Path = pipelines.get(pipeline).file
    except ConfigError:
        return None
    return file


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page.

    Args:
        request: who asks; its session and role are known to the template.
        template: its file's name.
        status: of HTTP.
        values: for the template.
    """
    session = getattr(request.state, "session", None)
    role = getattr(request.state, "role", None)
    names = [] if role is None else request.app.state.pipelines.names  # who has yet to sign in learns none
    chosen = values.get("pipeline")

    def link(path: str, **more: Any) -> str:
        """An address of this server, with the pipeline where there are several."""
        asked = {name: value for name, value in more.items() if value is not None}
        if len(names) > 1 and chosen:
            asked["pipeline"] = chosen
        return path + (f"?{urlencode(asked)}" if asked else "")

    common = {
        "link": link,
        "names": names,
        "pipeline": chosen,
        "csrf": "" if session is None else session.csrf,
        "operates": role == "operate",
        "signed_in": bool(request.app.state.access.tokens) and session is not None,
        "now": time.time(),
        "path": request.url.path,
        "file": _file(request, chosen) if names else None,
    }
    return HTMLResponse(ENVIRONMENT.get_template(template).render(**{**common, **values}), status)
