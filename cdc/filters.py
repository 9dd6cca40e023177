"""Filters over documents: JMESPath that must be true. Pure."""

from __future__ import annotations

from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError, JMESPathTypeError

from cdc.errors import ConfigError

MAX_CHARS = 1_000


def compiled(text: str) -> Any:
    """What a filter's text means: has ``search``.

    Raises:
        ConfigError: it is no JMESPath; says where (terminal).
    """
    if len(text) > MAX_CHARS:
        raise ConfigError(f"the filter has {len(text):,} characters", fix=f"at most {MAX_CHARS:,} are taken")
    try:
        made = jmespath.compile(text)
        made.search({})  # a function that there is not is only found now
    except JMESPathTypeError:
        return made  # an empty document has nothing that a function could take
    except RecursionError:
        raise ConfigError("the filter is nested too deep", fix="take parentheses out of it") from None
    except JMESPathError as error:
        raise _wrong(text, error) from error
    return made


def _wrong(text: str, error: JMESPathError) -> ConfigError:
    at = getattr(error, "lex_position", getattr(error, "lexer_position", None))
    # Its own words end with the expression, and an arrow that needs a fixed width.
    said = str(error).split("\n")[0].partition(": Parse error")[0].rstrip(" :")
    where = f"at character {int(at) + 1}" if at is not None else "in a function"
    near = f", near {text[int(at) : int(at) + 20]!r}" if at is not None and text[int(at) :] else ""
    return ConfigError(
        f"filter: no JMESPath {where}{near}: {said}",
        fix="texts stand in single quotes, numbers in backticks: status == 'open' && total > `100`",
    )
