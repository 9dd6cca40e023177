"""Which generation readers see: the index behind their alias."""

from __future__ import annotations

from typing import Any

from elasticsearch import Elasticsearch, NotFoundError

from cdc.errors import SinkRefused, SinkUnavailable
from cdc.index_names import generation_of
from sinks.elasticsearch.client import part_of
from sinks.elasticsearch.settings import Target

_TRIES = 5


def seen(client: Elasticsearch, target: Target) -> dict[str, int]:
    """Index -> generation of what the readers' alias leads to; normally one. Raises the client's errors."""
    answer = client.options(ignore_status=404).indices.get_alias(name=target.index)
    if answer.meta.status == 404 and "error" in answer.body:
        return {}
    found = [index for index in answer.body if part_of(answer, index, "aliases") is not None]
    numbers = {index: generation_of(index) or ("", 0) for index in found}
    return {index: number if alias == target.index else 0 for index, (alias, number) in numbers.items()}


def made(client: Elasticsearch, target: Target) -> set[int]:
    """Generations that an index is called by, whoever has made it. Raises the client's errors."""
    listed = client.indices.get(index=f"{target.index}_g*", expand_wildcards="all").body
    numbers = (generation_of(index) or ("", 0) for index in listed)
    return {number for alias, number in numbers if alias == target.index}


def promote(client: Elasticsearch, who: str, target: Target, old: int) -> None:
    """One call takes the alias from where it is and gives it to this generation: no reader sees both, or neither.

    Raises:
        SinkRefused: readers see another generation than ``old``.
        SinkUnavailable: the alias is moved by others, over and over (transient).
        ApiError, TransportError: for the caller to translate.
    """
    for _ in range(_TRIES):
        readers = seen(client, target)
        if set(readers) == {target.concrete}:
            return
        strange = set(readers.values()) - {old, target.generation}
        if strange:
            raise SinkRefused(
                f"{who}: the alias {target.index} leads to {', '.join(sorted(readers))}, not to generation {old}",
                means="someone else has promoted or moved it, or an index that was restored under another name has "
                "brought it; nothing was changed",
                fix="`headwater generations FILE` says what is known; take the alias from an index that is none of "
                "these, then promote again",
            )
        others = [index for index in readers if index != target.concrete]
        actions: list[dict[str, Any]] = [
            {"remove": {"index": index, "alias": target.index, "must_exist": True}} for index in others
        ]
        actions.append({"add": {"index": target.concrete, "alias": target.index}})
        try:
            client.indices.update_aliases(actions=actions)
        except NotFoundError:
            continue  # somebody moved it between the look and the call
    if set(seen(client, target)) != {target.concrete}:
        raise SinkUnavailable(f"{who}: the alias {target.index} is being moved by someone else", fix="promote again")
