"""A Redis server's own files: its log (AOF) and its dumps (RDB) keep what was deleted until they are written anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import redis

from cdc.errors import EraseUnfinished, SinkUnavailable
from cdc.saying import Say
from sinks.lasting import Lasting
from sinks.redis.client import ERRORS, connect, lacks_rights, reason_of
from sinks.redis.settings import Settings

LOOK_SECONDS = 0.3
_BUSY = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
Info = Mapping[str, Any]


@dataclass(frozen=True)
class Files:
    """Of one node.

    Attributes:
        node: ``host:port``.
        log: whether it writes a log.
        dump: whether it has written a dump since its start, or was filled from one, or is told to write some.
        refused: why its files could not be written anew; None if they were, or there are none.
        folder: where its files are; empty if it does not tell.
        replicas: how many servers follow it, each with files of its own.
    """

    node: str
    log: bool
    dump: bool
    refused: str | None = None
    folder: str = ""
    replicas: int = 0

    @property
    def kinds(self) -> str:
        """What there is, in words."""
        return " and ".join(word for word, there in (("log (AOF)", self.log), ("dump (RDB)", self.dump)) if there)

    @property
    def unseen(self) -> str:
        """What may lie on disks besides, of which the server says nothing; empty if there can't be any."""
        missing = [word for word, there in (("log (AOF)", self.log), ("dump (RDB)", self.dump)) if not there]
        words = []
        if missing:
            where = f" in {self.folder}" if self.folder else " in its folder"
            words.append(f"a {' or a '.join(missing)} of before its start may lie{where}, and nobody tells: look there")
        if self.replicas:
            words.append(
                f"its replicas ({self.replicas}) keep files of their own: whoever runs them must write them anew"
            )
        return "; ".join(words)


def files_of(settings: Settings) -> list[Files]:
    """What files each node keeps, as far as it tells.

    Raises:
        SinkUnavailable: no answer (transient).
    """
    return _each(settings, _files)


def write_anew(settings: Settings, say: Say, seconds: float) -> list[Files]:
    """Have every node write its files anew, from what it has in memory, and wait for it.

    Args:
        settings: the sink's.
        say: told a line now and then.
        seconds: for how long at the most without any progress: a node that is large takes what it takes.

    Raises:
        EraseUnfinished: a node is not done, and does not go on (transient).
        SinkUnavailable: no answer (transient).
    """

    def anew(node: Any, name: str) -> Files:
        found = _files(node, name)
        try:
            if found.log:
                _free(node, name, say, seconds)
                node.execute_command("BGREWRITEAOF")
                say(f"{name}: writing its log anew")
                _done(node, name, say, seconds, "aof_last_bgrewrite_status")
            if found.dump:
                _free(node, name, say, seconds)
                node.execute_command("BGSAVE")
                say(f"{name}: writing its dump anew")
                _done(node, name, say, seconds, "rdb_last_bgsave_status")
        except redis.ResponseError as error:
            # A managed server does not let anybody; it has files of its own, and its owner's word for them.
            return replace(found, refused=reason_of(error))
        return found

    return _each(settings, anew)


def _each(settings: Settings, ask: Callable[[Any, str], Files]) -> list[Files]:
    client = None
    try:
        client = connect(settings)
        if not settings.cluster:
            at = client.get_connection_kwargs()
            return [ask(client, f"{at['host']}:{at['port']}" if "host" in at else str(at.get("path")))]
        nodes = client.get_primaries()
        return [ask(client.get_redis_connection(node), node.name) for node in nodes]
    except ERRORS as error:
        if lacks_rights(error):
            return [Files(settings.who, log=False, dump=False, refused=reason_of(error))]
        raise SinkUnavailable(f"{settings.who}: {reason_of(error)}", fix="start it, then run this again") from error
    finally:
        if client is not None:
            client.close()


def _files(node: Any, name: str) -> Files:
    info: Info = node.info("persistence")
    log, dump = bool(int(info.get("aof_enabled", 0))), bool(_setting(node, "save")) or _dumped(node, info)
    replicas = int(node.info("replication").get("connected_slaves", 0))
    return Files(name, log, dump, folder=_setting(node, "dir"), replicas=replicas)


def _dumped(node: Any, info: Info) -> bool:
    """Whether there is a dump, of a server that is not told to write any: somebody has once, for a backup say.

    Writing one where there is none would be wrong: the next start would take it for what the server holds.
    """
    if int(info.get("rdb_saves", 0)):  # counted since Redis 7
        return True
    if not int(info.get("aof_enabled", 0)) and int(info.get("rdb_last_load_keys_loaded", 0)):  # the same
        return True
    # Its start, where it has not saved since; both are whole seconds. A copy for a replica that went over the wire
    # does not count.
    server: Info = node.info("server")
    now = int(server.get("server_time_usec", 0)) // 1_000_000
    started = now - int(server.get("uptime_in_seconds", 0))
    return now > 0 and int(info.get("rdb_last_save_time", 0)) > started + 1


def _setting(node: Any, name: str) -> str:
    try:
        return str(node.config_get(name).get(name) or "")
    except redis.ResponseError:
        return ""  # a managed server does not tell


def _busy(info: Info) -> bool:
    return any(int(info.get(name, 0)) for name in _BUSY)


def _free(node: Any, name: str, say: Say, seconds: float) -> None:
    """One that is under way may have begun before the delete: it is waited for, and another begun."""
    lasting = Lasting(seconds, say)
    while _busy(info := node.info("persistence")):
        if lasting.late(_far(info), f"{name}: waiting for its files{_words(info)}"):
            raise EraseUnfinished(
                f"Redis at {name} has not gone on with writing its files for {seconds:.0f} s",
                means="its files may still hold what was deleted",
                fix="look at its log and its disk, and at `INFO persistence`; the same again waits for it once more",
            )
        time.sleep(LOOK_SECONDS)


def _far(info: Info) -> list[Any]:
    """What is another while files are being written: how many keys are (Redis 6.2), else how long it takes by now."""
    told = "current_save_keys_processed" in info
    far = ("current_save_keys_processed",) if told else ("aof_current_rewrite_time_sec", "rdb_current_bgsave_time_sec")
    return [info.get(name) for name in (*_BUSY, *far)]


def _words(info: Info) -> str:
    done, total = (int(info.get(f"current_save_keys_{which}", 0)) for which in ("processed", "total"))
    return f", {done:,} of {total:,} keys are written" if total else ""


def _done(node: Any, name: str, say: Say, seconds: float, status: str) -> None:
    _free(node, name, say, seconds)
    if (said := node.info("persistence").get(status, "ok")) != "ok":
        raise EraseUnfinished(
            f"Redis at {name} could not write its files anew: {status} is {said}",
            means="its files still hold what was deleted",
            fix="look at its log and its disk; the same again tries once more",
        )
