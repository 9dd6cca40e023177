"""The words of a dead letter: what all letters of one cause have in common, and what of a reason is no value. Pure.

Servers quote what they refuse: Elasticsearch a preview of the field's value and the document's id, Spark's guard the
columns that an expression saw. So the words of two letters of one cause differ, and a reason is as secret as a row.
"""

from __future__ import annotations

import re

CAUSE_CHARS = 200
# How the reason begins of what a sink was given and would not take.
REFUSED = "the sink refused it: "
# Stands where something was left out.
CUT = "…"

# What of the words in brackets, which may be values as well, is a name: of a field, of a type, of an index's mapping.
_NAMED = r"(?:(?<!date )\bfield|\btype|\bmapper|\bfor|\bto|\bpath|\bpart of field)\s"
_BRACKETS = re.compile(rf"({_NAMED})?\[([^\[\]]*)\]")
_NAME = re.compile(r"[A-Za-z_][\w.@-]{0,127}")
# To the last sign of its kind: what is quoted may hold such signs itself.
_QUOTED = re.compile(r"'.*'|\".*\"", re.DOTALL)
_BRACES = re.compile(r"\{.*\}", re.DOTALL)
_PLACE = re.compile(r"\brecord \S+/\d+/\d+")
_NUMBER = re.compile(r"(?<![\w.\[])-?\d[\d.,]*")

# What is kept of a reason where values are not: words of our own that name no value, and a server's status and kind.
_STATUS = re.compile(r"\d{3} [a-z][a-z_]*")
_FIELD = re.compile(r"(?<!date )\bfield \[([A-Za-z_][\w.@-]{0,127})\]")
_OURS = re.compile(
    r"version -?\d+ is out of bounds"
    r"|the (?:key must|document (?:has|is)) [a-z_0-9 ,;]+"
    r"|record \S+/\d+/\d+: \S+\.\S+ did not change, is large, and so is not in Postgres's log"
    r"|rejected without a reason"
    r"|a value has no place in (?:the table's columns|Spark SQL's types)"
)
# Spark SQL stands between backticks: it is the file's, not a row's. What it saw comes behind.
_EXPRESSION = re.compile(r"Spark could not compute ((?:[^`{]|`[^`]*`)*?) for (?:this row|\{)")
_RECORD = re.compile(
    r"record \S+/\d+/\d+(?: is not an event of \S+?(?=[:\s])| can't be read|: (?:a value|column \S+) of \S+)"
)
# What we refuse for its size: the limit is the sink's and no value. Only whole, lest a server's words hide in it.
_LIMITED = re.compile(
    r"(the key must have \d+ to \d+ bytes, this one has |the key must be at most \d+ bytes long; it has"
    r" |the document has )\d+((?: bytes, this sink takes at most \d+)?)"
)
LEFT_OUT = "values are kept out of letters (policy.dead_letters.values)"


def cause_of(reason: str) -> str:
    """What letters of one cause have in common: the reason without what it quotes, its numbers and its record's place.

    Two letters of one cause have one text; a text that two causes share is possible, and a value that stands among
    the words without any sign around it stays. So this is for grouping, and for eyes that may see rows.

    Args:
        reason: a letter's.
    """
    if found := _EXPRESSION.match(reason):
        text = f"Spark could not compute {found[1]}"
    elif found := _LIMITED.fullmatch(reason):
        text = f"{found[1]}N{found[2]}"
    else:
        status = _STATUS.match(reason)
        head = status[0] if status else ""
        text = " ".join((head + _without_values(reason[len(head) :])).split())
    return text if len(text) <= CAUSE_CHARS else text[:CAUSE_CHARS] + CUT


def hidden(why: str) -> str:
    """Why a key could not be written, without what a sink or Spark has quoted of its row: for who may not see rows.

    Args:
        why: of a repair or a replay; words that are ours alone stay as they are.
    """
    if why.startswith(REFUSED):
        return REFUSED + cause_of(why.removeprefix(REFUSED))
    return cause_of(why) if why.startswith(("Spark could not compute", "a value has no place in")) else why


def _without_values(words: str) -> str:
    words = _PLACE.sub("record", words)
    words = _BRACES.sub(CUT, words)
    words = _QUOTED.sub(CUT, words)
    words = _BRACKETS.sub(_named, words)
    return _NUMBER.sub("N", words)


def _named(found: re.Match[str]) -> str:
    context, inside = found[1], found[2]
    if context and _NAME.fullmatch(inside):
        return f"{context}[{inside}]"
    return f"{context or ''}[{CUT}]"


def bare(reason: str) -> str:
    """Of a reason only what can be no value: what is not known to be none is left out.

    A server's words are its status, its kind of error and the field; of our own what they are about. Names of fields
    stay, and in a column of JSON those are keys of the row's.

    Args:
        reason: a letter's.
    """
    if found := _OURS.match(reason):
        return found[0].strip()
    if found := _EXPRESSION.match(reason):
        return f"Spark could not compute {found[1]}; {LEFT_OUT}"
    if found := _RECORD.match(reason):
        return f"{found[0]}; {LEFT_OUT}"
    if found := _STATUS.match(reason):
        field = _FIELD.search(reason)
        return f"{found[0]}{f', field [{field[1]}]' if field else ''}; {LEFT_OUT}"
    return LEFT_OUT
