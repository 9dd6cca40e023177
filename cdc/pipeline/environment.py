"""``${NAME}`` and ``${NAME:-default}`` in the file's texts, filled in after parsing so that a value can't add YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc.pipeline.document import FileNode, is_text
from cdc.pipeline.problems import Problem

# More than any password, certificate or list of brokers; bounds what a file full of variables can grow to.
MAX_TEXT = 64 * 1024
MAX_TOTAL = 4 << 20

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^}]*))?\})?")


class VariableText(str):
    """Text that a variable made as a whole: it may also stand for a number or true/false, unlike a quoted "5"."""

    __slots__ = ()


def substitute(root: FileNode, env: Mapping[str, str]) -> list[Problem]:
    """Fill in the variables of every text below ``root``, in place.

    As in a shell, ``:-`` also replaces an empty value. ``$${`` stands for ``${``. Keys are not looked at.

    Args:
        root: the document.
        env: variables.

    Returns:
        missing variables, and ``${`` that begins none.
    """
    filler = _Filler(env)
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias: the same node in two places
            continue
        seen.add(id(node))
        if isinstance(node.value, str) and "${" in node.value:
            filler.fill(node)
        elif isinstance(node.value, list):
            waiting += node.value
        elif isinstance(node.value, dict):
            waiting += node.value.values()
    return filler.problems


class _Filler:
    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.problems: list[Problem] = []
        self.total = 0

    def fill(self, node: FileNode) -> None:
        text: str = node.value
        parts, end, length = [], 0, 0
        found = None
        for found in _REFERENCE.finditer(text):
            value = self._value(node, found)
            parts += [text[end : found.start()], value]
            length += found.start() - end + len(value)
            if length > MAX_TEXT or self.total + length > MAX_TOTAL:
                self._problem(node, found, f"variables make more text here than {MAX_TEXT // 1024} KiB")
                return
            end = found.end()
        self.total += length
        if found and found["name"] and found.span() == (0, len(text)):
            node.value, node.variable = VariableText(parts[-1]), True
        else:
            node.value = "".join((*parts, text[end:]))

    def _value(self, node: FileNode, found: re.Match[str]) -> str:
        if found["escaped"]:
            return "${"
        name = found["name"]
        if not name:
            self._problem(
                node, found, "${ begins no variable: expected ${NAME} or ${NAME:-default}", "write $${ for the text ${"
            )
            return ""
        value = self.env.get(name)
        if value is not None and not is_text(value):
            self._problem(node, found, f"environment variable {name} is not UTF-8 text")
            return ""
        if found["or"]:
            return value or found["default"]
        if value is None:
            self._problem(
                node, found, f"environment variable {name} is not set", f"set {name}, or write ${{{name}:-default}}"
            )
            return ""
        return value

    def _problem(self, node: FileNode, found: re.Match[str], what: str, fix: str = "") -> None:
        one_line = "\n" not in found.string[: found.start()] and not (node.quoted and "\n" in found.string)
        offset = found.start() + node.quoted if one_line else 0
        self.problems.append(Problem(node.line, node.column + offset, what, fix))
