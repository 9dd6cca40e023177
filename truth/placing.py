"""How rows of a nested table stand in the row above: as an array, as one or null, as values, or not at all.

The second opinion's own; the engine's is in ``cdc.join.document``.
"""

from __future__ import annotations

from typing import Any

from cdc.join.tree import Node


class Several:
    """In the place of what stands at one row where `one: true` says that there is no second, and the tables have one.

    Which of them sinks show is no question of the tables: the newest. A document with it is wrong whatever they hold.

    Attributes:
        value: what the row of the least key gives: for Spark SQL, which needs a value.
        said: what is wrong, in words.
    """

    def __init__(self, value: Any, said: str) -> None:
        self.value, self.said = value, said


SEVERAL = "(`one: true`, and {} rows of {} point here)"


def is_several(value: Any) -> bool:
    """Whether a document's value is what ``Several`` says."""
    return isinstance(value, str) and value.startswith("(`one: true`, and ") and value.endswith(" point here)")


def place(node: Node, found: list[Any], out: dict[str, Any]) -> None:
    """Put rows of a node into the object of the row above, whose object this is.

    Args:
        node: the node.
        found: what its rows give, in order: objects, values, or for a hidden node what is below each of them.
        out: changed.
    """
    array = node.kind == "child" and not node.one
    said = SEVERAL.format(len(found), node.table.qualified) if not array and len(found) > 1 else None
    if not node.hide:
        shown = [one for one in found if one is not None] if node.value is not None and array else found
        out[node.name] = shown if array else (found[0] if found else None)
        if said is not None:
            out[node.name] = Several(found[0], said)
        return
    for name, (_, many) in standing(node).items():
        parts = [one[name] for one in found]
        wrong = next((one.said for one in parts if isinstance(one, Several)), said)
        plain = [one.value if isinstance(one, Several) else one for one in parts]
        value: Any = ([] if many else None) if not plain else plain[0]
        if array:
            value = [item for one in plain for item in (one if many else [one])]
            value = value if many else [item for item in value if item is not None]
        out[name] = value if wrong is None else Several(value, wrong)


def standing(node: Node) -> dict[str, tuple[Node, bool]]:
    """What of other rows stands in a node's row: name -> (its node, whether it is an array)."""
    found: dict[str, tuple[Node, bool]] = {}
    for below in node.nested:
        array = below.kind == "child" and not below.one
        if below.hide:
            found |= {name: (one, array or many) for name, (one, many) in standing(below).items()}
        else:
            found[below.name] = (below, array)
    return found
