"""Filters over documents: JMESPath that must be true. Pure.

Who may subscribe says what is done for each document, so a filter has to end: it makes nothing that could be made
larger by its next stage, and looks at so many elements of lists, and no more.
"""

from __future__ import annotations

from typing import Any

import jmespath
from jmespath import functions, visitor
from jmespath.exceptions import ArityError, JMESPathError, JMESPathTypeError, UnknownFunctionError, VariadictArityError

from cdc.errors import ConfigError

MAX_CHARS = 1_000
# In one document. A filter of one comparison in a list looks four times at each element: 50,000 of them, a tenth of a
# second.
MAX_LOOKS = 200_000
# `[@, @][]` has twice of what it is given, and thirty of them behind one another are no thousand characters.
_MAKES = {"multi_select_list": "[…, …]", "multi_select_dict": "{…: …}"}
_MAKING = frozenset(("join", "map", "merge", "reverse", "sort", "sort_by", "to_array", "to_string"))


class TooManyLooks(JMESPathError):  # type: ignore[misc]  # the library has no types
    """A filter looks at more of a document than any may."""


class _Interpreter(visitor.TreeInterpreter):  # type: ignore[misc]
    """JMESPath's own, which counts."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_LOOKS

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._pay(1)
        return getattr(self, f"visit_{node['type']}")(node, *args, **kwargs)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        found = self.visit(node["children"][0], value)
        if isinstance(found, list):
            self._pay(sum(len(one) for one in found if isinstance(one, list)))
        return super().visit_flatten({"children": [{"type": "literal", "value": found}]}, value)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        given = [self.visit(child, value) for child in node["children"]]
        self._pay(sum(len(one) for one in given if isinstance(one, list | dict)))
        return self._functions.call_function(node["value"], given)

    def _pay(self, looks: int) -> None:
        self._left -= looks
        if self._left < 0:
            raise TooManyLooks(f"more than {MAX_LOOKS:,} looks at one document")


class Filter:
    """A filter that was understood."""

    def __init__(self, parsed: Any) -> None:
        self._parsed = parsed

    def search(self, document: Any) -> Any:
        """What it is of a document.

        Raises:
            JMESPathError: a function does not take what this document has there, or it looks at too much of it.
        """
        return _Interpreter().visit(self._parsed, document)


def compiled(text: str) -> Filter:
    """What a filter's text means.

    Raises:
        ConfigError: it is no JMESPath, and says where; it calls a function that there is not, or makes what no filter
            needs (terminal).
    """
    if len(text) > MAX_CHARS:
        raise ConfigError(f"the filter has {len(text):,} characters", fix=f"at most {MAX_CHARS:,} are taken")
    try:
        parsed = jmespath.compile(text).parsed
        _refuse(parsed)
        made = Filter(parsed)
        made.search({})  # what it makes of its own literals may already be too much
    except JMESPathTypeError:
        return made  # an empty document has nothing that a function could take
    except RecursionError:
        raise ConfigError("the filter is nested too deep", fix="take parentheses out of it") from None
    except JMESPathError as error:
        raise _wrong(text, error) from error
    return made


def _refuse(parsed: Any) -> None:
    """Raises ConfigError for what no filter needs, and JMESPathError for a call that no document could make good."""
    left = [parsed]
    while left:
        node = left.pop()
        made = _MAKES.get(node["type"])
        if node["type"] == "multi_select_list" and all(child["type"] == "literal" for child in node["children"]):
            made = None  # ['a', 'b'] takes nothing of the document
        if node["type"] == "function_expression" and node["value"] in _MAKING:
            made = f"{node['value']}()"
        if made:
            raise ConfigError(
                f"filter: {made} makes something new of a document; a filter only says whether one is wanted",
                fix="compare fields as they are, or what contains(), length(), max() and the like say of them",
            )
        if node["type"] == "slice" and node["children"][2] == 0:
            raise ConfigError("filter: the step of a slice is 0, which takes nothing", fix="[::2] takes every second")
        if node["type"] == "function_expression":
            _check_call(node["value"], len(node["children"]))
        left += [child for child in node["children"] if isinstance(child, dict)]  # those of a slice are numbers


def _check_call(name: str, given: int) -> None:
    """The library says so only when it comes to the call: behind `&&`, `||` or `[? ]` with some documents, or none.

    Raises:
        JMESPathError: there is no such function, or it takes another number of arguments.
    """
    if name not in functions.Functions.FUNCTION_TABLE:
        raise UnknownFunctionError(f"Unknown function: {name}()")
    takes = functions.Functions.FUNCTION_TABLE[name]["signature"]
    if takes and takes[-1].get("variadic"):
        if given < len(takes):
            raise VariadictArityError(len(takes), given, name)
    elif given != len(takes):
        raise ArityError(len(takes), given, name)


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
