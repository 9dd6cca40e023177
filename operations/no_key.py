"""What can be no key of a view, whatever rows there are."""

from __future__ import annotations

import re

from cdc.keys import split_id
from cdc.view import View

# Types of whole numbers: the power of two that they end at.
WHOLE = {"int2": 15, "int4": 31, "int8": 63}


def no_key(view: View, key: str) -> str | None:
    """Why a key can be none of this view's, by its form: that there is no such row would be half of the truth. Pure.

    Args:
        view: whose documents have rows' keys.
        key: as somebody typed it.

    Returns:
        Words where it has fewer parts than the key, or more, or where a column holds whole numbers or UUIDs, and its
        part is none; None if it could be a key.
    """
    columns, texts = [view.table.by_name[name] for name in view.key], split_id(key, len(view.key))
    if len(columns) != len(texts):
        parts = "1 part" if len(texts) == 1 else f"{len(texts)} parts"
        return f"{key} has {parts}, and the key of {view.table.qualified} {len(columns)}: {'|'.join(view.key)}"
    for column, text in zip(columns, texts, strict=True):
        if not column.array and not _fits(column.base_type, text.strip()):
            article = "an" if column.type_name[0] in "aio" else "a"
            return f"{text} is not {article} {column.type_name}, the type of {view.table.qualified}.{column.name}"
    return None


def _fits(kind: str, text: str) -> bool:
    if kind in WHOLE:
        return re.fullmatch(r"[+-]?[0-9]+", text) is not None and -(2 ** WHOLE[kind]) <= int(text) < 2 ** WHOLE[kind]
    return kind != "uuid" or re.fullmatch(r"\{?[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}\}?", text) is not None
