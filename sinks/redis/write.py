"""Writing: pipelines of script calls, a few items each, repeated for the items that could not be taken now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cdc.errors import Fenced, SinkRefused
from sinks.contract import STALE, WRITTEN, Answer, rejected
from sinks.redis.client import ERRORS, Client, is_no_script, is_of_an_item, is_passing, reason_of
from sinks.redis.names import Names
from sinks.redis.script import ELSEWHERE, FENCED, GROUP, MOVING, SOURCE, UNCLAIMED, Change, Terms, command
from sinks.redis.server import Server
from sinks.retry import Patience


class Call(NamedTuple):
    """One item under way: its place in the caller's list, its id as it stands in keys, what to write."""

    place: int
    suffix: bytes
    version: int
    document: bytes


class Writes:
    """The writes of one generation of one view."""

    def __init__(self, server: Server, where: Names) -> None:
        settings = server.settings
        self._server, self._where, self._cluster = server, where, settings.cluster
        numbers = (settings.ttl_seconds or 0, settings.fence_seconds, settings.token, where.generation)
        self._terms = Terms(*(b"%d" % number for number in numbers))
        # Where the values were when we last looked; the script says so when they have moved.
        self._plain = where.generation == 1

    def deliver(self, batch: list[Call], answers: list[Answer | None]) -> None:
        """Put an answer for each call into ``answers``, however long that takes.

        Raises:
            SinkUnavailable: the patience ran out. SinkRefused: final. Fenced: somebody else has taken over.
        """
        patience = self._server.patience()
        while batch:
            try:
                results = self._execute(batch)
            except ERRORS as error:
                self._server.wait_or_raise(error, patience)
                continue
            batch = self._settle(batch, results, answers, patience)

    def _execute(self, batch: Sequence[Call]) -> list[Any]:
        """One result for each call: 1, 0, an exception, or what the script says about all of its group."""
        client, where = self._server.client(), self._where
        if self._cluster:
            self._check_token(client)
        place = b"C" if self._cluster else b"P" if self._plain else b"H"
        prefix = where.own if self._cluster else where.plain if self._plain else where.hidden
        size = 1 if self._cluster else GROUP
        groups = [batch[start : start + size] for start in range(0, len(batch), size)]
        pipe = client.pipeline(transaction=False)
        for group in groups:
            changes = [
                Change(prefix + suffix, where.version(suffix), version, document)
                for _, suffix, version, document in group
            ]
            pipe.execute_command(*command(changes, self._terms, (where.pointer, where.changes), place))
        results: list[Any] = []
        for group, answer in zip(groups, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(answer, Exception) and not is_no_script(answer) and not is_passing(answer):
                raise answer
            results += answer if isinstance(answer, list) else [answer] * len(group)
        return results

    def _check_token(self, client: Client) -> None:
        """A cluster's scripts can't see the pointer, which lies on one of its nodes."""
        token, ours = client.hget(self._where.pointer, f"lease:{self._where.generation}"), self._server.settings.token
        if token is None and ours:
            raise self._forgotten()
        if token is not None and int(token) > ours:
            raise self.fenced()

    def _settle(
        self, batch: list[Call], results: list[Any], answers: list[Answer | None], patience: Patience
    ) -> list[Call]:
        """Take answers over; returns the items to send again."""
        again: list[Call] = []
        said: set[int] = set()
        unknown_script = False
        trouble: Exception | None = None
        for call, result in zip(batch, results, strict=True):
            if not isinstance(result, Exception):
                if result >= 0:
                    answers[call.place] = WRITTEN if result else STALE
                else:
                    said.add(result)
                    again.append(call)
            elif is_no_script(result):
                unknown_script = True
                again.append(call)
            elif is_of_an_item(result):
                answers[call.place] = rejected(reason_of(result))
            else:  # as letters, all that comes would be passed over for what the server does to everybody
                trouble = result
                again.append(call)
        if len(again) < len(batch):
            patience.progress()
        if trouble is not None:
            self._server.wait_or_raise(trouble, patience)
        self._obey(said, patience)
        if unknown_script:
            patience.hold(f"{self._server.settings.who}: the server has forgotten our script (restarted?)")
            self._server.patiently(lambda client: client.script_load(SOURCE), patience)
        return again

    def _obey(self, said: set[int], patience: Patience) -> None:
        """What the script said about whole groups; see ``script.py``."""
        who, where = self._server.settings.who, self._where
        if FENCED in said:
            raise self.fenced()
        if UNCLAIMED in said:
            raise self._forgotten()
        if ELSEWHERE in said:
            self._plain = not self._plain
        if MOVING in said:
            patience.hold(
                f"{who}: a promotion is renaming the keys of {where.view} (if it was killed: `headwater promote` again)"
            )

    def _forgotten(self) -> SinkRefused:
        settings, where = self._server.settings, self._where
        return SinkRefused(
            f"{settings.who}: the key {where.pointer.decode()} has lost generation {where.generation}",
            means="the server was emptied, was started without its data, or has evicted that key: documents that do "
            "not change again would be missing for ever",
            fix=f"`headwater rebuild FILE {settings.name} --auto` makes them again; with on_loss: rebuild `run` does",
        )

    def fenced(self) -> Fenced:
        """That another process has taken over, as an error."""
        settings, where = self._server.settings, self._where
        return Fenced(
            f"{settings.who}: generation {where.generation} of {where.view} was taken over by a newer lease, this "
            f"process has token {settings.token}",
            means="Redis refuses this process's writes; the other one goes on from the same place, nothing is lost",
            fix="nothing, if the other process is meant to run; else stop that one first",
        )
