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
# Looked for in the few signs before the bracket.
_NAMED = re.compile(r"(?:(?<!date )\bfield|\btype|\bmapper|\bfor|\bto|\bpath|\bpart of field)\s\Z")
_BEFORE = 20
_BRACKET = re.compile(r"[\[\]]")
_NAME = re.compile(r"[A-Za-z_][\w.@-]{0,127}")
# To the last sign of its kind, for what is quoted may hold such signs itself; to the end where the words were cut. A
# sign before a letter ends nothing, and one behind a letter begins something only if no other does: an apostrophe.
_QUOTED = re.compile(r"(?<!\w)(['\"])(?:.*\1(?!\w)|.*)", re.DOTALL)
_BEHIND_A_LETTER = re.compile(r"'.*'|\".*\"", re.DOTALL)
_BRACES = re.compile(r"\{(?:.*\}|.*)", re.DOTALL)
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
    words = _BEHIND_A_LETTER.sub(CUT, _QUOTED.sub(CUT, words))
    return _NUMBER.sub("N", _without_brackets(words))


def _without_brackets(words: str) -> str:
    pieces, begun = [], 0
    while (opens := words.find("[", begun)) >= 0:
        end = _closes(words, opens)
        inside = words[opens + 1 : end - 1]
        named = _NAMED.search(words, max(0, opens - _BEFORE), opens) and _NAME.fullmatch(inside)
        pieces += [words[begun:opens], f"[{inside if named else CUT}]"]
        begun = end
    return "".join(pieces) + words[begun:]


def _closes(words: str, opens: int) -> int:
    """Behind the bracket that closes one: a value in brackets may have brackets, also one that nothing belongs to."""
    depth, end = 0, len(words)
    for found in _BRACKET.finditer(words, opens):
        if found[0] == "[" and depth == 0 and found.start() > opens:
            return end  # of another one
        depth += 1 if found[0] == "[" else -1 if depth else 0
        if depth == 0:
            end = found.end()
    return end if depth == 0 else len(words)


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
        field = _FIELD.search(_without_values(reason))  # and in no value
        return f"{found[0]}{f', field [{field[1]}]' if field else ''}; {LEFT_OUT}"
    return LEFT_OUT
