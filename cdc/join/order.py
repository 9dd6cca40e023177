"""The small texts of a joined view: ``order_by: "time_hour desc, id"`` and ``value: "count(distinct plane)"``."""

from __future__ import annotations

from typing import NamedTuple, get_args

from cdc.join.expressions import Token, identifier, tokens
from cdc.join.tree import Function, Order

FUNCTIONS: tuple[str, ...] = get_args(Function)
# Postgres's own limit of a key's columns; more than anybody sorts by.
MAX_ORDER = 32


class TextError(ValueError):
    """A text that is not what its key takes; the message holds nothing of it but plain words.

    Args:
        what: what was expected.
        fix: the way out, or "".
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.what, self.fix = what, fix
        super().__init__(what)


class AggregateText(NamedTuple):
    """``count(distinct plane)``, taken apart.

    Attributes:
        function: what is computed.
        distinct: only for count.
        value: a name without its backticks, or a Spark SQL expression as it stands; None for ``count(*)``.
        named: whether ``value`` is a name and nothing else.
    """

    function: Function
    distinct: bool
    value: str | None
    named: bool = False


def parse_order(text: str) -> tuple[Order, ...]:
    """``column [asc|desc] [nulls first|nulls last], ...``; nulls stand first ascending and last descending unless said.

    Raises:
        TextError: another form, or a column a second time.
    """
    terms: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.text == "," and token.kind == "symbol":
            terms.append([])
        else:
            terms[-1].append(token)
    if len(terms) > MAX_ORDER:
        raise TextError(f"expected at most {MAX_ORDER} columns")
    found = tuple(_order(term, number) for number, term in enumerate(terms, 1))
    for number, order in enumerate(found):
        if any(order.column == other.column for other in found[:number]):
            raise TextError(f"the column of part {number + 1} is here a second time")
    return found


_ORDER_FORM = "write: column desc nulls last, other_column; a name that is no plain word stands in `backticks`"


def _order(term: list[Token], number: int) -> Order:
    if not term or term[0].kind not in ("word", "quoted"):
        raise TextError(f"part {number} does not begin with a column's name", _ORDER_FORM)
    words = [token.text.lower() if token.kind == "word" else "" for token in term[1:]]
    descending = words[:1] == ["desc"]
    if words[:1] in (["desc"], ["asc"]):
        del words[0]
    if words in ([], ["nulls", "first"], ["nulls", "last"]):
        return Order(term[0].text, descending, words[1] == "first" if words else not descending)
    raise TextError(f"part {number}: expected asc, desc, nulls first or nulls last after the column", _ORDER_FORM)


def parse_aggregate(text: str) -> AggregateText:
    """One of count, sum, min, max and avg over a column or a Spark SQL expression; ``count(*)``, ``count(distinct x)``.

    Raises:
        TextError: another form.
    """
    found = tokens(text)
    word = found[0].text.lower() if found and found[0].kind == "word" else ""
    if word not in FUNCTIONS or len(found) < 3 or found[1].text != "(":
        raise TextError(f"expected one of {', '.join(f'{name}(...)' for name in FUNCTIONS)}")
    function: Function = next(name for name in get_args(Function) if name == word)
    if _closing(found) != len(found) - 1:
        raise TextError(
            f"expected nothing after {function}(...) and its parentheses closed",
            "one aggregate is one function; put several together in the view's `fields`",
        )
    inner = found[2:-1]
    if not inner:
        raise TextError(f"{function}() of nothing", "write count(*) to count rows")
    distinct = _is(inner[0], "distinct") and len(inner) > 1
    if distinct and function != "count":
        raise TextError(f"distinct goes with count only, not with {function}")
    inner = inner[1:] if distinct else inner
    value = text[inner[0].start : inner[-1].end]
    if function == "count" and not distinct and len(inner) == 1 and (value == "*" or inner[0].kind == "number"):
        return AggregateText(function, distinct, None)
    _single(function, inner, distinct=distinct)
    name = identifier(value)
    return AggregateText(function, distinct, value if name is None else name, name is not None)


def _is(token: Token, word: str) -> bool:
    return token.kind == "word" and token.text.lower() == word


def _closing(found: list[Token]) -> int:
    """Where the parenthesis closes that the second token opens; -1 if it does not, or a quote is open."""
    depth = 0
    for number, token in enumerate(found):
        if token.kind == "broken":
            return -1
        if token.kind == "symbol":
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 and token.text == ")":
                return number
    return -1


def _single(function: Function, inner: list[Token], *, distinct: bool) -> None:
    """Refuse ``*`` and several values."""
    if [token.text for token in inner] == ["*"]:
        raise TextError(f"* goes with count only: count(*), not {function}({'distinct ' if distinct else ''}*)")
    depth = 0
    for token in inner:
        if token.kind == "symbol":
            depth += (token.text in "([") - (token.text in ")]")
            if token.text == "," and depth == 0:
                raise TextError(f"{function} takes one value", "count(distinct concat_ws('|', a, b)) counts pairs")
