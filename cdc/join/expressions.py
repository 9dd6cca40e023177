"""Which columns a Spark SQL text names, without Spark: what the row store must keep, and where a prefix belongs.

Spark itself parses and checks expressions (spark/reading/expressions.py). What is needed here is less: its lexer's
words, and of a word whether it can be a column. ``mentions`` may say too much (a column too many is stored), never too
little; ``over_struct`` must be exact, and so follows whether an operand or an operator may stand at a place: in
``CAST(x AS date)``, ``EXTRACT(year FROM t)`` and ``transform(a, year -> year + 1)`` no column ``year`` or ``date`` is
meant. Of a word of the grammar both ask whether a column of that name is asked for: ``end - start``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

Kind = Literal["word", "quoted", "string", "number", "symbol", "broken"]

_STRING = r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|(?P<tag>\$[A-Za-z]*\$).*?(?P=tag)"""
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[bB][dD]|[lLsSyYfFdD])?(?!\w)"
_TOKEN = re.compile(
    rf"(?P<space>\s+|--[^\n]*)|(?P<comment>/\*)|(?P<string>{_STRING})|(?P<quoted>`(?:[^`]|``)*`)|(?P<number>{_NUMBER})"
    r"|(?P<word>\w+)|(?P<broken>['\"`])|(?P<symbol>->|=>|::|\|\||<=>|[<>!=]=|<>|.)",
    re.DOTALL,
)
_COMMENT_END = re.compile(r"/\*|\*/")

# Words behind an operand, and those before one. Spark reserves none: each may be a column (`end - start`) as well.
_BEHIND_WORDS = "and or is in like ilike rlike regexp between when then else end from for as div escape"
_BEHIND = frozenset(_BEHIND_WORDS.split())
_CONSTANTS = frozenset(("null", "true", "false"))
_GRAMMAR = _BEHIND | _CONSTANTS | frozenset(("not", "case", "distinct", "all", "any", "some", "exists"))
_AFTER_NOT = frozenset(("in", "like", "ilike", "rlike", "regexp", "between"))
_UNIT_WORDS = "year quarter month week day dayofyear hour minute second millisecond microsecond"
_UNITS = frozenset(_UNIT_WORDS.split())
_SPANS = _UNITS | {"nanosecond", "nanoseconds"} | {f"{unit}s" for unit in _UNITS}
_WITH_UNIT = frozenset(("timestampadd", "dateadd", "date_add", "timestampdiff", "datediff", "date_diff", "timediff"))
_TRIMS = frozenset(("both", "leading", "trailing"))


class Token(NamedTuple):
    """A piece of Spark SQL.

    Attributes:
        kind: ``quoted`` is a name in backticks; ``broken`` a quote that nothing closes.
        text: of a quoted name without the backticks.
        start: where it begins in the text.
        end: where it ends.
    """

    kind: Kind
    text: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """The tokens of a Spark SQL text, without white space and comments; what follows a lone quote is one token."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, "every character is at least a symbol"
        kind = next(name for name, part in match.groupdict().items() if part is not None and name != "tag")
        end = match.end()
        if kind == "comment":
            end = _after_comment(text, end)
        elif kind == "broken":
            end = len(text)
        if kind == "quoted":
            found.append(Token("quoted", match[0][1:-1].replace("``", "`"), at, end))
        elif kind not in ("space", "comment"):
            found.append(Token(kind, text[at:end], at, end))  # type: ignore[arg-type]
        at = end
    return found


def _after_comment(text: str, at: int) -> int:
    """Bracketed comments nest."""
    depth = 1
    while depth and (found := _COMMENT_END.search(text, at)) is not None:
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return len(text) if depth else at


def quoted(name: str) -> str:
    """A name in backticks, for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(text: str) -> str | None:
    """The name that a text is, if it is one name and nothing else; without its backticks."""
    found = tokens(text)
    return found[0].text if len(found) == 1 and found[0].kind in ("word", "quoted") else None


def mentions(text: str, names: Iterable[str]) -> set[str]:
    """Which of the columns ``names`` an expression may use, in any letter case.

    Strings, comments and function names are not looked at; ``*`` means all. A member (``airline.name``) counts as
    ``name`` too: whose it is, is not asked.

    Args:
        text: a Spark SQL expression.
        names: columns.

    Returns:
        those of ``names`` that it names, as they are spelled there; at times one too many, never one too few.
    """
    found, names = tokens(text), tuple(names)
    walk = _Walk(found, names)
    walk.run()
    star = any(name is None for _, name in walk.found)
    words = set()
    for number, token in enumerate(found):
        following = found[number + 1].text if number + 1 < len(found) else ""
        if token.kind == "quoted" or (token.kind == "word" and following != "("):
            words.add(token.text.casefold())
        elif token.text == "*" and token.kind == "symbol":
            before = found[number - 1] if number else None
            star = star or before is None or (before.kind == "symbol" and before.text in "(,.")
    return {name for name in names if star or name.casefold() in words}


def names(text: str, columns: Iterable[str]) -> set[str]:
    """Which of ``columns`` an expression names as columns of its row: neither one too many nor, in any letter case, one
    too few. ``*`` names none: it takes those that there are.

    Args:
        text: a Spark SQL expression.
        columns: their names.
    """
    walk = _Walk(tokens(text), tuple(columns))
    walk.run()
    return {name for _, name in walk.found if name is not None}


def members(text: str) -> set[tuple[str, str]]:
    """Each member that an expression names, with the word before it: ``airline.name``; in small letters.

    Args:
        text: a Spark SQL expression.
    """
    found = tokens(text)
    return {
        (before.text.casefold(), after.text.casefold())
        for before, point, after in zip(found, found[1:], found[2:], strict=False)
        if point.text == "." and point.kind == "symbol" and after.kind in ("word", "quoted")
    }


def over_struct(text: str, names: Iterable[str], struct: str) -> str:
    """An expression over columns as one over the fields of a struct column.

    Args:
        text: a Spark SQL expression, like ``NOT cancelled``.
        names: the columns that it may name.
        struct: name of the struct column, like ``t0``.

    Returns:
        the text with every column prefixed: ``NOT `t0`.`cancelled```; Spark parses it as it would the first.
    """
    walk = _Walk(tokens(text), tuple(names))
    walk.run()
    parts, end = [], 0
    for token, name in walk.found:
        parts += [text[end : token.start], quoted(struct), ".", "*" if name is None else quoted(name)]
        end = token.end
    return "".join((*parts, text[end:]))


def _is(token: Token, word: str) -> bool:
    return token.kind == "word" and token.text.lower() == word


def _begins_operand(token: Token) -> bool:
    if token.kind == "word":
        return token.text.lower() not in _BEHIND
    return token.kind in ("quoted", "string", "number") or token.text in ("(", "-", "+", "~", "*")


class _Walk:
    """Goes over an expression's tokens and finds those that are columns of the row.

    ``operand`` says what the grammar takes next: an operand (where a word may be a column) or an operator (where a word
    is a keyword: AND, IS, THEN, the DAY of an interval ...).
    """

    def __init__(self, found: Sequence[Token], names: Sequence[str]) -> None:
        self.tokens = found
        self.names = names
        self.at = 0
        self.operand = True
        self.calls: list[str] = []  # functions whose parentheses are open; "" for plain ones
        self.lambdas: list[tuple[int, frozenset[str]]] = []  # (open parentheses around a lambda, its parameters)
        self.found: list[tuple[Token, str | None]] = []  # columns; None for a star

    def run(self) -> None:
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind in ("word", "quoted"):
                self._word(token)
            elif token.kind == "symbol":
                self._symbol(token.text)
            else:
                self.operand = False
            self.at += 1

    def _next(self, distance: int = 1) -> Token:
        end = self.at + distance
        return self.tokens[end] if 0 <= end < len(self.tokens) else Token("symbol", "", 0, 0)

    def _symbol(self, text: str) -> None:
        if text in "([":
            before = self._next(-1)
            self.calls.append(before.text.lower() if self.at and before.kind == "word" and text == "(" else "")
            self._lambda_list()
            self.operand = True
        elif text in ")]":
            self._close(len(self.calls))
            del self.calls[-1:]
            self.operand = False
        elif text in (".", ":") and not self.operand:
            self.at += 1  # a member: whatever it is called, it is no column of the row
            self.operand = False
        elif text == "::":
            self._skip_type(alias=False)
            self.operand = False
        elif text == "*" and self.operand and self._next(-1).text in ("", "(", ",", "."):
            self.found.append((self.tokens[self.at], None))
            self.operand = False
        else:
            if text == ",":
                self._close(len(self.calls))
            self.operand = True

    def _word(self, token: Token) -> None:
        following, word = self._next(), token.text.lower()
        plain = token.kind == "word"
        if following.text == "->" and following.kind == "symbol":
            self._open_lambda(frozenset((token.text.casefold(),)))
        elif not self.operand and plain:
            self._operator(word)
        elif plain and word == "interval" and self._skip_interval():
            self.operand = False
        elif plain and self._grammar(word, following):
            self.operand = word not in _CONSTANTS and word != "end"
        elif plain and self._keyword(word, following):
            self.operand = not _is(following, "from")
        elif following.text == "(" and following.kind == "symbol":
            self.operand = True
        elif following.text == "=>":
            pass  # a named argument
        else:
            self._column(token)
            self.operand = False

    def _operator(self, word: str) -> None:
        """A word behind an operand, with those that belong to it: NOT IN, IS NOT DISTINCT FROM, AS and a type."""
        self.operand = word not in ("end", "as")
        if word == "as":
            self._skip_type(alias=True)
        elif word == "not":
            self._skip(_AFTER_NOT)
        elif word == "is":
            self._skip(("not",))
            self.operand = not self._skip((*_CONSTANTS, "unknown"))
            if self.operand and self._skip(("distinct",)):
                self._skip(("from",))

    def _skip(self, words: Collection[str]) -> bool:
        """Pass over the next token if it is one of these words."""
        found = any(_is(self._next(), word) for word in words)
        self.at += found
        return found

    def _grammar(self, word: str, following: Token) -> bool:
        """Whether a word at an operand's place is one of the grammar, and not a column that is called like one."""
        if word not in _GRAMMAR or word in _CONSTANTS or not self._known(word):
            return word in _GRAMMAR
        goes_on = _begins_operand(following)
        if word == "not":
            return goes_on
        if word == "case":
            goes_on = goes_on or _is(following, "when") or self._known(following.text.lower())
            return goes_on and any(_is(token, "when") for token in self.tokens[self.at + 1 :])
        if word == "when":
            return _is(self._next(-1), "case") and not _is(following, "when")
        if word in ("distinct", "all") and goes_on:
            return self._next(-1).text == "(" and self.calls[-1] != ""
        return following.text == "("

    def _keyword(self, word: str, following: Token) -> bool:
        """Whether a word at an operand's place is no name: a literal's type, a unit, a word of a function's syntax."""
        if following.kind == "string":
            return True
        call = self.calls[-1] if self.calls else ""
        first = self._next(-1).text == "("
        if first and call == "extract":
            return _is(following, "from")
        if first and call in _WITH_UNIT and word in _UNITS and following.text == ",":
            return self._arguments() == 3
        return first and call == "trim" and word in _TRIMS and following.text not in (")", ",")

    def _known(self, word: str) -> bool:
        """Whether a word, in small letters, is one of the columns or a parameter of a lambda around it."""
        known = {name.casefold() for name in self.names}
        return word in known or any(word in parameters for _, parameters in self.lambdas)

    def _column(self, token: Token) -> None:
        name = token.text.casefold()
        if any(name in parameters for _, parameters in self.lambdas):
            return
        same = [known for known in self.names if known.casefold() == name]
        if same:
            exact = token.text in same or len(same) > 1  # of several, Spark shall say that it is ambiguous
            self.found.append((token, token.text if exact else same[0]))

    # -- lambdas ------------------------------------------------------------------------------------------------------

    def _open_lambda(self, parameters: frozenset[str]) -> None:
        self.lambdas.append((len(self.calls), parameters))
        self.operand = False

    def _close(self, depth: int) -> None:
        """A lambda's body ends at the comma or the parenthesis that ends the argument."""
        while self.lambdas and self.lambdas[-1][0] >= depth:
            self.lambdas.pop()

    def _lambda_list(self) -> None:
        """``(a, b) ->``: at the opening parenthesis, which this skips when it is one."""
        end = self.at + 1
        while end < len(self.tokens) and (self.tokens[end].kind in ("word", "quoted") or self.tokens[end].text == ","):
            end += 1
        if [token.text for token in self.tokens[end : end + 2]] == [")", "->"]:
            names = frozenset(t.text.casefold() for t in self.tokens[self.at + 1 : end] if t.kind != "symbol")
            self.calls.pop()
            self._open_lambda(names)
            self.at = end + 1

    # -- what is skipped ----------------------------------------------------------------------------------------------

    def _skip_interval(self) -> bool:
        """``interval '5 days'``, ``interval 1 day -2 hours``, ``interval '1-2' year to month``; False if it is none."""
        start = self.at
        while True:
            sign = self._next().text in ("+", "-")
            value, unit = self._next(1 + sign), self._next(2 + sign)
            if value.kind not in ("string", "number") or unit.kind != "word" or unit.text.lower() not in _SPANS:
                break
            self.at += 2 + sign
            if self._skip(("to",)):
                self.at += 1
        if self.at == start and self._next().kind == "string":
            self.at += 1
        return self.at > start

    def _skip_type(self, *, alias: bool) -> None:
        """A type's name with what is in its brackets; after AS (of CAST, or an alias) all up to the argument's end."""
        self.at += 1
        brackets = alias or self._next(0).text.lower() in ("array", "map", "struct")
        depth = 0
        while self.at + 1 < len(self.tokens):
            following = self._next().text
            if following == "(" or (brackets and following == "<"):
                depth += 1
            elif depth and following in (">", ")"):
                depth -= 1
            elif not depth and (not alias or following in (")", ",")):
                return
            self.at += 1

    def _arguments(self) -> int:
        """How many arguments the call has that the walk stands in."""
        depth, count = 0, 1
        for token in self.tokens[self.at :]:
            if token.kind != "symbol":
                continue
            if token.text in "([":
                depth += 1
            elif token.text in ")]":
                if depth == 0:
                    break
                depth -= 1
            count += token.text == "," and depth == 0
        return count
