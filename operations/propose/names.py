"""Names of views and of what stands in them, made of names of tables and columns. Pure.

A row that is pointed at is named after the column that points: ``author_id`` makes ``author``. Rows that point are
named after their table: ``orders``; where two columns of it point at the same table, ``messages_by_sender``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

# What a column that points at a row ends in, beside the name of that row.
_SUFFIX = re.compile(
    r"(_(id|fk|uuid|guid|key|code|no|nr|num|number|ref)|(?<=[a-z0-9])(Id|ID|Fk|FK|Uuid|UUID|Key|Code))$"
)
_IRREGULAR = {
    "people": "person",
    "children": "child",
    "men": "man",
    "women": "woman",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "indices": "index",
    "matrices": "matrix",
    "vertices": "vertex",
    "criteria": "criterion",
    "analyses": "analysis",
    "series": "series",
    "species": "species",
    "news": "news",
    "data": "data",
    "media": "media",
    "metadata": "metadata",
    "gas": "gas",
    "movies": "movie",
    "cookies": "cookie",
    "statuses": "status",
    "buses": "bus",
    "aliases": "alias",
    "lenses": "lens",
    "quizzes": "quiz",
    "knives": "knife",
    "wives": "wife",
    "lives": "life",
    "leaves": "leaf",
    "shelves": "shelf",
}
_PLURALS = {one: many for many, one in _IRREGULAR.items()}
_LAST_WORD = re.compile(r"(?P<before>.*?)(?P<word>[A-Z]?[a-z]+|[A-Z]+)$")
# What a view's name, and what a name in a document may be at most.
MAX_NAME = 63


class Taken(set[str]):
    """Names in lower case: where a document has thousands of them, not each is made so again for each new one."""

    def __init__(self, found: Iterable[str] = ()) -> None:
        super().__init__(name.lower() for name in found)

    def take(self, name: str, *others: str) -> str:
        """As ``free``; the name is taken then."""
        found = free(name, self, *others)
        self.add(found.lower())
        return found


def singular(name: str) -> str:
    """``order_items`` -> ``order_item``: the last word of a name, for one of its things."""
    return _last_word(name, _one)


def plural(name: str) -> str:
    """``person_skill`` -> ``person_skills``; what looks like a plural stays what it is."""
    return _last_word(name, _many)


def snake(name: str) -> str:
    """A view's name, or a pipeline's: lower-case letters, digits and _, beginning with a letter."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    text = re.sub(r"[^a-z0-9]+", "_", text).strip("_")
    return (text if text[:1].isalpha() else f"t_{text}".rstrip("_"))[:MAX_NAME]


def field(name: str) -> str:
    """A name in a document, in the table's own style: ``OrderItems`` -> ``orderItems``, ``order_items`` as it is."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name)
    if text.isupper():
        text = text.lower()
    text = text[:1].lower() + text[1:]
    return (text if re.match(r"[a-z_]", text) else f"t_{text}")[:MAX_NAME]


def pointed_at(columns: Sequence[str], target: str, target_key: Sequence[str]) -> str:
    """What a row that columns point at is called.

    Args:
        columns: those that point.
        target: the name of the table that is pointed at.
        target_key: its columns that they are equal to.
    """
    one = field(singular(target))
    if len(columns) > 1:
        return one
    bare = _SUFFIX.sub("", columns[0])
    if bare != columns[0] and bare:
        return field(bare)
    # `carrier` of flights, which is the key of airlines: its airline. `reply_to` of tweets: its reply_to_tweet.
    return one if columns[0] in (*target_key, "id") else field(f"{columns[0]}_{one}")


def pointing(columns: Sequence[str]) -> str:
    """What tells rows apart that point at a row by several ways: ``sender`` of ``sender_id``."""
    return field("_".join(_SUFFIX.sub("", column) or column for column in columns))


def free(name: str, taken: Collection[str], *others: str) -> str:
    """A name that is not taken, letter case apart: this one, else one of the others, else one with a number."""
    used = taken if isinstance(taken, Taken) else Taken(taken)
    for one in (name, *others):
        if one[:MAX_NAME].lower() not in used:
            return one[:MAX_NAME]
    number = 2
    while f"{name[: MAX_NAME - 4]}_{number}".lower() in used:
        number += 1
    return f"{name[: MAX_NAME - 4]}_{number}"


def _last_word(name: str, changed: Callable[[str], str]) -> str:
    found = _LAST_WORD.fullmatch(name)
    if found is None:
        return name
    word = found["word"]
    made = changed(word.lower())
    if word.isupper() and len(word) > 1:
        made = made.upper()
    elif word[0].isupper():
        made = made[0].upper() + made[1:]
    return found["before"] + made


def _one(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if re.search(r"(ss|x|z|ch|sh)es$", word):
        return word[:-2]
    return word[:-1] if re.search(r"[^siu]s$", word) and len(word) > 2 else word


def _many(word: str) -> str:
    if word in _PLURALS:
        return _PLURALS[word]
    if word in _IRREGULAR or word != _one(word):
        return word
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) else "s")
