"""Who may write: the token of a lease, kept as the name of the write aliases.

``flights_g1_w1795236777123456`` belongs to the process that holds token 1795236777123456. Who takes over adds its own
alias and removes all older ones, of the documents and of the fences, in one call. From then on Elasticsearch itself
refuses the older process (``require_alias``), whatever that one believes about its lease.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from elasticsearch import ApiError, Elasticsearch, NotFoundError

from cdc.errors import Fenced, SinkRefused, SinkUnavailable
from sinks.elasticsearch.settings import Target

# Before leases the alias had no number.
_UNNUMBERED = -1
_TRIES = 5


class _Claim(NamedTuple):
    """A write alias of an index: its token, and whether writes go to that index where another one has it too."""

    token: int
    writes: bool


class Lease:
    """The claims on one sink's targets."""

    def __init__(self, client: Elasticsearch, who: str) -> None:
        self._client, self._who = client, who

    def newest(self, target: Target) -> int | None:
        """The newest token that has claimed the target; None if nobody has, or if its index is not there.

        Raises:
            ApiError, TransportError: for the caller to translate.
        """
        return max(self._claims(target), default=None)

    def oldest(self, target: Target) -> int | None:
        """The token of that one of the two indices that was claimed the longest ago; None as of ``newest``.

        Both are claimed in one call: only one that was put back from a snapshot shows an older token than before.

        Raises:
            ApiError, TransportError: for the caller to translate.
        """
        return min(self._claims(target), default=None)

    def check(self, target: Target) -> None:
        """Refuse to go on when somebody newer has claimed the target.

        Raises:
            SinkRefused: and says which token has.
        """
        newest = self.newest(target)
        if newest is not None and newest > target.token:
            raise SinkRefused(
                f"{self._who}: {target.concrete} was claimed with lease token {newest}, this process has "
                f"{target.token}",
                means="another process has taken this generation over, perhaps from another machine or state folder; "
                "nothing was changed",
                fix="nothing, if that process is meant to run; else end it and start this one again",
            )

    def claim(self, target: Target) -> None:
        """Make this process's token the only one. Idempotent; both indices must be there.

        Raises:
            SinkRefused: a newer token has claimed the target, or another index has its alias.
            SinkUnavailable: others claim it at the same moment, over and over (transient).
            ApiError, TransportError: for the caller to translate.
        """
        for _ in range(_TRIES):
            held = self._held(target)
            try:
                self.check(target)
            except SinkRefused:
                self._withdraw(target, held)
                raise
            actions = self._takeover(target, held)
            if not actions:
                return
            try:
                self._client.indices.update_aliases(actions=actions)
            except NotFoundError:
                continue  # what was to be removed has gone: somebody else takes over just now, so look again
            except ApiError as error:
                if (why := self.shared(target)) is not None:
                    raise why from error
                raise
        raise SinkUnavailable(f"{self._who}: several processes claim {target.concrete} at once", fix="start it again")

    def fenced(self, target: Target) -> Fenced | None:
        """Why a write was refused, if it was because somebody took over.

        Raises:
            ApiError, TransportError: for the caller to translate.
        """
        newest = self.newest(target)
        if newest is None or newest <= target.token:
            return None
        return Fenced(
            f"{self._who}: {target.concrete} was taken over with lease token {newest}, this process has {target.token}",
            means="Elasticsearch refuses this process's writes; the other one goes on from the same place, nothing is "
            "lost",
            fix="nothing, if the other process is meant to run; else stop that one first",
        )

    def removed(self, target: Target) -> SinkRefused | None:
        """Why a write was refused, if it was because somebody removed this process's alias from an index that is there.

        It is not set again here: the index may be one that was put back without its aliases, from an older state.

        Raises:
            ApiError, TransportError: for the caller to translate.
        """
        held = self._held(target)
        pairs = ((target.concrete, target.writer), (target.fences, target.fence_writer))
        gone = [(index, alias) for index, alias in pairs if alias not in held[index]]
        if not gone or not self._client.indices.exists(index=[index for index, _ in pairs]):
            return None
        index, alias = gone[0]
        if self._client.indices.exists(index=alias):
            return None  # an index is in its place
        return SinkRefused(
            f"{self._who}: index {index} is there, but has lost the alias {alias}, by which it is written",
            means="somebody has removed it, or has restored the index without its aliases; nothing was written since",
            fix="if it was removed, start `headwater run FILE` again, which sets it; what was restored lacks the "
            "changes since its snapshot: `headwater rebuild FILE SINK --auto`",
        )

    def shared(self, target: Target) -> SinkRefused | None:
        """Why a write was refused, if it was because this process's alias leads to another index too.

        Raises:
            ApiError, TransportError: for the caller to translate.
        """
        ours = {target.writer: target.concrete, target.fence_writer: target.fences}
        quiet = self._client.options(ignore_status=404)
        found = quiet.indices.get_alias(name=list(ours), expand_wildcards="all").body
        # Beside the indices there may be the words on an alias that nobody has.
        aliases = {
            index: said["aliases"] for index, said in found.items() if isinstance(said, dict) and "aliases" in said
        }
        others = sorted((index, alias) for index, names in aliases.items() for alias in names if ours[alias] != index)
        if not others:
            return None
        index, alias = others[0]
        return SinkRefused(
            f"{self._who}: the alias {alias}, by which {ours[alias]} is written, leads to {index} too",
            means="an index that is restored from a snapshot under another name brings its aliases with it, and the "
            "server does not know then where to write or to look; this batch waits, nothing of it is lost",
            fix=f"delete {index}, or take all aliases of this sink from it (restored with `include_aliases: false` it "
            "has none), then start `headwater run FILE` again",
        )

    def _claims(self, target: Target) -> list[int]:
        """The newest token of each of the two indices that has one."""
        tokens = ([one.token for one in claims.values()] for claims in self._held(target).values())
        held = ([token for token in some if token != _UNNUMBERED] for some in tokens)
        return [max(some) for some in held if some]

    def _held(self, target: Target) -> Mapping[str, Mapping[str, _Claim]]:
        """Index -> write alias -> what it says."""
        pairs = ((target.concrete, f"{target.concrete}_w"), (target.fences, f"{target.fences}_w"))
        held: dict[str, dict[str, _Claim]] = {}
        found = self._client.indices.get_alias(
            index=[index for index, _ in pairs], ignore_unavailable=True, expand_wildcards="all"
        ).body
        for index, stem in pairs:
            named = found.get(index, {}).get("aliases", {}).items()
            claims = ((name, token_of(name, stem), bool(said.get("is_write_index"))) for name, said in named)
            held[index] = {name: _Claim(token, writes) for name, token, writes in claims if token is not None}
        return held

    def _takeover(self, target: Target, held: Mapping[str, Mapping[str, _Claim]]) -> list[dict[str, Any]]:
        """``must_exist`` makes it compare-and-set: the call does nothing if somebody else was quicker.

        ``is_write_index``: an index that is restored under another name, aliases and all, is refused, or if its alias
        does not say so (as those of before did not) gets no writes and stops none.
        """
        actions: list[dict[str, Any]] = []
        for index, alias in ((target.concrete, target.writer), (target.fences, target.fence_writer)):
            older = [name for name in held[index] if name != alias]
            actions += [{"remove": {"index": index, "alias": name, "must_exist": True}} for name in older]
            if alias not in held[index] or not held[index][alias].writes:
                actions.append({"add": {"index": index, "alias": alias, "is_hidden": True, "is_write_index": True}})
        return actions

    def _withdraw(self, target: Target, held: Mapping[str, Mapping[str, _Claim]]) -> None:
        """Two may add their aliases to a fresh index at once; the older takes its own back."""
        for index, alias in ((target.concrete, target.writer), (target.fences, target.fence_writer)):
            if alias in held[index]:
                self._client.indices.update_aliases(actions=[{"remove": {"index": index, "alias": alias}}])


def token_of(alias: str, stem: str) -> int | None:
    """The token in a write alias's name; None for other names."""
    rest = re.fullmatch(re.escape(stem) + r"(\d*)", alias)
    if rest is None:
        return None
    return int(rest[1]) if rest[1] else _UNNUMBERED
