"""In which form `run` and `serve` say what happens: sentences for a person at a terminal, else JSON, a line each.

The form is chosen once, when the command begins, by what standard error is then; ``HEADWATER_LOG`` overrules. Lines go
to standard error as it is at the moment: bars on a terminal put something else in its place. docs/logs.md says what is
in a line.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import click
import orjson
import structlog
from structlog.typing import EventDict, Processor

from cdc.errors import ConfigError
from cdc.journal import CONTEXT, what_of
from cdc.masking import mask_text

FORM, LEVEL = "HEADWATER_LOG", "HEADWATER_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error")
# Libraries tell of each request at level info: of them only what is wrong is told, of our own rooms what is asked for.
ROOMS = ("cdc", "connectors", "sinks", "spark", "operations", "truth", "console", "headwater")
# uvicorn's words for terminals, and what another formatter has left in a record: the same words again.
_NOT_OURS = ("color_message", "message", "asctime")
_FIRST = ("at", "level", "event", *CONTEXT)

_log = logging.getLogger("headwater")


@dataclass
class _Form:
    """How this process says things now.

    Attributes:
        json: as JSON.
        always: what every line is about.
        ended: the error that has ended a command which spoke JSON: its last word is JSON, too.
    """

    json: bool = False
    always: dict[str, Any] = field(default_factory=dict)
    ended: BaseException | None = None


_form = _Form()


def wanted_form(environ: Mapping[str, str], *, terminal: bool) -> Literal["json", "text"]:
    """``json``, or ``text`` for a person.

    Args:
        environ: environment variables.
        terminal: whether standard error is one.

    Raises:
        ConfigError: the variable says something else (terminal).
    """
    said = environ.get(FORM, "")
    if said in ("json", "text"):
        return "json" if said == "json" else "text"
    if said:
        raise ConfigError(f"{FORM} is {said!r}", fix="set it to json or text; or leave it out")
    return "text" if terminal else "json"


def wanted_level(environ: Mapping[str, str]) -> str | None:
    """From which level on our own lines are told; None if nothing is said.

    Raises:
        ConfigError: there is no such level (terminal).
    """
    said = environ.get(LEVEL, "")
    if said and said not in LEVELS:
        raise ConfigError(f"{LEVEL} is {said!r}", fix=f"choose from {', '.join(LEVELS)}; or leave it out")
    return said or None


@contextmanager
def log_lines() -> Iterator[None]:
    """While it lasts, this process says things in the form that is wanted.

    Raises:
        ConfigError: a variable says nothing that there is (terminal).
    """
    as_json = wanted_form(os.environ, terminal=sys.stderr.isatty()) == "json"
    level = wanted_level(os.environ) or ("info" if as_json else None)
    _form.json, _form.always, _form.ended = as_json, {}, None
    if level is None:  # as ever: sentences, and warnings of rooms as Python prints them
        yield
        return
    handler = _StandardError()
    handler.setFormatter(_json_formatter() if as_json else logging.Formatter("%(message)s"))
    root, before = logging.getLogger(), {name: logging.getLogger(name).level for name in ROOMS}
    root.addHandler(handler)
    for name in ROOMS:
        logging.getLogger(name).setLevel(level.upper())
    _log.setLevel(logging.INFO)  # what a command says for itself is told whatever the level of the rest
    try:
        yield
    except Exception as error:
        _form.ended = error if as_json else None
        raise
    finally:
        _form.json = False
        root.removeHandler(handler)
        for name, was in before.items():
            logging.getLogger(name).setLevel(was)


def speaks_json() -> bool:
    """Whether lines are JSON now."""
    return _form.json


def belongs_to(pipeline: str) -> None:
    """From now on every line is about this pipeline, whichever thread says it."""
    _form.always["pipeline"] = pipeline


def say(line: str) -> None:
    """Tell a sentence, with what it is about if it knows that; for a person, of several pipelines, with its name."""
    if _form.json:
        _log.log(level_of(line), "%s", line, extra=dict(what_of(line)))
        return
    pipeline = {**structlog.contextvars.get_contextvars(), **what_of(line)}.get("pipeline")
    click.echo(f"{pipeline}: {line}" if pipeline and "pipeline" not in _form.always else line, err=True)


def last_word(error: BaseException, text: str) -> None:
    """Tell with which error a command ends, in the form in which it has spoken."""
    click.echo(_written(logging.ERROR, text) if error is _form.ended else text, err=True)


def last_defect(error: BaseException) -> bool:
    """Tell a defect that ends a command, as JSON if it has spoken so; whether it has."""
    if error is not _form.ended:
        return False
    told = (type(error), error, error.__traceback__)
    click.echo(_written(logging.CRITICAL, "a defect of Headwater's has ended this process", exc_info=told), err=True)
    return True


def level_of(line: str) -> int:
    """How grave a sentence is, by how it begins: a person reads that, too."""
    if line.startswith(("error: ", "alarm: ")):
        return logging.ERROR
    return logging.WARNING if line.startswith(("warning: ", "waiting: ")) else logging.INFO


class _StandardError(logging.Handler):
    """Writes to standard error as it is when a line comes."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:
            self.handleError(record)


def _written(level: int, text: str, **more: Any) -> str:
    what = {"name": _log.name, "levelno": level, "levelname": logging.getLevelName(level), "msg": text, **more}
    return _json_formatter().format(logging.makeLogRecord(what))


def _json_formatter() -> logging.Formatter:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
    ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _whole, _as_json],
    )


def _whole(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Every line has the same names first, and no password in a text."""
    found = {name: mask_text(value) if isinstance(value, str) else value for name, value in event.items()}
    for name in _NOT_OURS:
        found.pop(name, None)
    found = {**_form.always, **found}
    return {name: found.get(name) for name in _FIRST} | {k: v for k, v in found.items() if k not in _FIRST}


def _as_json(_logger: Any, _method: str, event: EventDict) -> str:
    return orjson.dumps(event, default=str).decode()
