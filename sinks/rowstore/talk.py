"""Talking to the row store's server or cluster: patience, pipelines, scripts, and what the guard's refusals mean."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import orjson

from cdc.errors import Fenced, SinkRefused, SinkUnavailable
from cdc.waits import waiting_for
from sinks.awake import Awake
from sinks.contract import OnWait
from sinks.redis.client import ERRORS, connect, is_no_script, is_passing, is_read_only, lacks_rights, reason_of
from sinks.redis.settings import Settings
from sinks.retry import Patience, quiet
from sinks.rowstore import key_names
from sinks.rowstore.commands import Command, batches, pipelined
from sinks.rowstore.contract import Attempt
from sinks.rowstore.scripts import ALL, CALL, CHANGE, FENCED, LOST, MANY, SCANNED, TAKEN, Script
from sinks.rowstore.settings import StoreSettings

# Items a round trip: enough to make it cheap, few enough that the answers fit in tens of megabytes.
CHUNK = 2000
NOBODY = Attempt()

T = TypeVar("T")

log = logging.getLogger(__name__)


class Memory(NamedTuple):
    """Of a node.

    Attributes:
        used: bytes that it has taken.
        limit: ``maxmemory``; 0 for none.
    """

    used: int
    limit: int


def _memory(answer: Mapping[str, Any]) -> Memory:
    return Memory(int(answer.get("used_memory", 0)), int(answer.get("maxmemory", 0)))


class Talk:
    """A connection to one namespace; see ``RedisRowStore``."""

    def __init__(self, settings: StoreSettings, on_wait: OnWait = quiet) -> None:
        self.settings, self._on_wait = settings, on_wait
        self._ns = settings.namespace
        self._token = str(settings.token)
        self._login = Settings(
            name="row store",
            url=settings.url,
            targets={},
            cluster=settings.cluster,
            user=settings.user,
            password=settings.password,
            ca_certs=settings.ca_certs,
            request_timeout_seconds=settings.request_timeout_seconds,
        )
        self._made: Any = None
        self._stop = threading.Event()
        self.awake = Awake(settings.away_seconds)
        # Where something was read since ``confirm`` was called last.
        self._read: set[str] = set()

    @property
    def login(self) -> Settings:
        """How its server is reached."""
        return self._login

    @property
    def who(self) -> str:
        """How errors name it."""
        return self._login.who.replace("sink 'row store'", "row store")

    # -- names --------------------------------------------------------------------------------------------------------

    def name(self, key: str) -> str:
        """A key's whole name."""
        return f"{self._at(key_names.slot(key))}{key}" if self.settings.cluster else self._ns + key

    def _at(self, slot: int) -> str:
        return f"{self._ns}{{{slot}}}"

    def places(self) -> list[str]:
        """What stands before a name of which each slot has its own (marks, pending), for every slot."""
        return [self._at(slot) for slot in range(key_names.SLOTS)] if self.settings.cluster else [self._ns]

    def beside(self, key: str) -> str:
        """The same for the slot that a key is in."""
        return self._at(key_names.slot(key)) if self.settings.cluster else self._ns

    # -- waiting, and refusals ----------------------------------------------------------------------------------------

    def _client(self) -> Any:
        if self._made is None:
            self._made = connect(self._login)
        return self._made

    def patiently(self, work: Callable[[Any], T]) -> T:
        """Do something with the client, again and again while the server is away."""
        patience = Patience(
            self.who, give_up_seconds=self.settings.give_up_seconds, on_wait=self._on_wait, stop=self._stop
        )
        while True:
            self.awake.check()
            try:
                with waiting_for(self.who):
                    return work(self._client())
            except ERRORS as error:
                if is_no_script(error):
                    self.load_scripts()
                    continue
                self.guarded(str(error))
                if not is_passing(error):
                    raise self._refused(error) from error
                if is_read_only(error) and not self.settings.cluster and self._made is not None:
                    self._made.connection_pool.disconnect()  # after a fail-over the name may lead to the new master
                patience.hold(reason_of(error))

    def scanned(self, verb: str, key: str, count: int) -> Iterator[list[bytes]]:
        """A set or a hash, piece by piece; from its beginning again where another run of a server has answered.

        Each run hashes the members in its own way, so that a cursor of another one passes some over: after a restart, a
        fail-over, and where a key's slot has moved to another node of a cluster. A call that has failed goes on.

        Args:
            verb: SSCAN or HSCAN.
            key: as ``name`` takes it.
            count: about how many members a piece has.
        """
        named, cursor, run = self.name(key), b"0", b""
        while True:
            answers = self.pipeline([("EVALSHA", SCANNED.sha, 1, named, verb, cursor, count)])
            now, following, found = answers[0]
            if cursor != b"0" and now != run:
                # Not its name, which has values of rows in it.
                log.warning("%s: a large key is read from its beginning: another run of a server has it now", self.who)
                cursor = b"0"
                continue
            yield found
            cursor, run = following, now
            if cursor == b"0":
                return

    def load_scripts(self) -> None:
        """Give the server our scripts."""
        self.patiently(lambda client: [client.script_load(script.source) for script in ALL])

    def _refused(self, error: Exception) -> SinkRefused:
        fix = "give row_store.user and row_store.password the right to use it" if lacks_rights(error) else ""
        return SinkRefused(f"{self.who}: {reason_of(error)}", means="nothing was skipped; the batch is held", fix=fix)

    def guarded(self, text: str) -> None:
        """Raise what a refusal of the guard means; nothing for any other text.

        Raises:
            Fenced: another process has taken the namespace over (terminal).
            SinkUnavailable: a later attempt at the batch is at work, or the server has lost the marks (transient).
        """
        if FENCED in text:
            raise Fenced(
                f"{self.who}: {self.settings.title} was taken over by another process",
                means="the other one goes on from the same place; this one has stopped writing, nothing is lost",
                fix="nothing, if the other process is meant to run; else stop that one first",
            )
        if TAKEN in text:
            raise SinkUnavailable(
                f"{self.who}: a later attempt at this batch is at work",
                means="a worker that was away has stopped; nothing is lost",
            )
        if LOST in text:
            self.lost()

    def lost(self) -> NoReturn:
        """Raise: the marks are not there.

        Raises:
            SinkUnavailable: always (transient): who starts again finds out what was lost.
        """
        raise SinkUnavailable(
            f"{self.who}: {self.settings.title} has lost its marks",
            means="the server was emptied, or restored from an older copy; the flow starts again and finds out",
        )

    def memory(self) -> dict[str, Memory]:
        """What each node that takes writes has in memory, by ``host:port``; all that the server holds, not this view.

        Raises:
            SinkUnavailable: no answer in time (transient).
        """

        return self.patiently(lambda client: {name: _memory(told) for name, _, told in self.told(client)})

    def told(self, client: Any) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        """What each node that takes writes tells of its memory: its name, how a command reaches it, INFO's answer."""
        if not self.settings.cluster:
            at = client.get_connection_kwargs()
            name = f"{at['host']}:{at['port']}" if "host" in at else str(at["path"])
            return [(name, {}, client.info("memory"))]
        nodes = [(node.name, {"target_nodes": node}) for node in client.get_primaries()]
        return [(name, there, client.info("memory", **there)) for name, there in nodes]

    # -- calls --------------------------------------------------------------------------------------------------------

    def reads(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands that read; their answers. ``(name, key, more …)``, the more being text."""
        if self.settings.cluster:
            return self.pipeline([(name, self.name(key), *more) for name, key, *more in commands])
        calls: list[Command] = []
        for chunk in batches(commands, CALL):
            named = [self._ns + key for _, key, *_ in chunk]
            jobs = orjson.dumps([(name, *more) for name, _, *more in chunk])
            calls.append(("EVALSHA", MANY.sha, len(named), *named, jobs))
        return [answer for answers in self.pipeline(calls) for answer in answers]

    def changes(self, commands: Sequence[Command], by: Attempt = NOBODY) -> list[Any]:
        """The same for commands that write."""
        calls: list[Command] = []
        for chunk in self._chunks(commands):
            named = [self.name(key) for _, key, *_ in chunk]
            jobs = orjson.dumps([(name, *more) for name, _, *more in chunk])
            calls.append(self.call(CHANGE, self.beside(chunk[0][1]), named, (jobs,), by))
        return [answer for answers in self.pipeline(calls) for answer in answers]

    def scripted(
        self, script: Script, items: Sequence[tuple[str, Sequence[Any]]], by: Attempt = NOBODY, *first: Any
    ) -> list[Any]:
        """Run a guarded script of one key an item: (key, arguments); ``first`` are the arguments before those."""
        calls: list[Command] = []
        for chunk in self._chunks(items):
            named = [self.name(key) for key, _ in chunk]
            arguments = (*first, *(argument for _, of in chunk for argument in of))
            calls.append(self.call(script, self.beside(chunk[0][0]), named, arguments, by))
        return [answer for answers in self.pipeline(calls) for answer in answers]

    def _seen(self, names: Sequence[str]) -> None:
        """Something is read where these keys lie."""
        self._read.update(map(self.beside, names) if self.settings.cluster else (self._ns,))

    def _chunks(self, items: Sequence[T]) -> Any:
        return batches(items, 1 if self.settings.cluster else CALL)

    def call(
        self, script: Script, place: str, named: Sequence[str], arguments: Sequence[Any], by: Attempt = NOBODY
    ) -> Command:
        """A guarded script's call."""
        guard = (self._token, by.part, str(by.number))
        return ("EVALSHA", script.sha, len(named) + 1, f"{place}o", *named, *guard, *arguments)

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Run whole commands in a few round trips."""
        answers: list[Any] = []
        for chunk in batches(commands, CHUNK if self.settings.cluster else CHUNK // CALL):
            answers += self.patiently(partial(pipelined, commands=chunk))
        return answers
