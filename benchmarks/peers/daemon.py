"""pgsync as a process: its settings, its bootstrap, its daemon, and the index that it keeps."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from benchmarks.peers import environment
from benchmarks.peers.documents import FLIGHT_CARD, Document
from benchmarks.peers.index import Index
from benchmarks.peers.measuring import GET_SECONDS, wait_until
from cdc.errors import StackError
from deploy.local.endpoints import Endpoints
from deploy.local.process import ENVIRONMENT, log_tail

# A database of its own on the row store's Redis, which never evicts: a queue must not lose items.
REDIS_DATABASE = 9
BOOTSTRAP_SECONDS = 120.0
STOP_SECONDS = 10.0
OPTIONS = {
    # By default it ends when one bulk request of 5,000 documents takes more than 10 s, as on a busy machine it may.
    "ELASTICSEARCH_TIMEOUT": "120",
}
# What its maintainer advises against slowness: the producer waits this long for silence before it hands changes on.
TUNED = {**OPTIONS, "POLL_TIMEOUT": "0.01"}


def redis_url(store: str) -> str:
    """The URL of pgsync's database on the row store's server."""
    return f"{store.rpartition('/')[0]}/{REDIS_DATABASE}"


def variables(
    endpoints: Endpoints, elasticsearch: str, folder: Path, options: Mapping[str, str] = OPTIONS
) -> dict[str, str]:
    """The environment that pgsync is configured by; nothing of ours gets through."""
    return {
        **ENVIRONMENT,
        "PG_HOST": endpoints.postgres_host,
        "PG_PORT": str(endpoints.postgres_port),
        "PG_USER": endpoints.postgres_superuser,
        "PG_PASSWORD": endpoints.postgres_password,
        "ELASTICSEARCH_URL": elasticsearch,
        "REDIS_URL": redis_url(endpoints.redis_store_url),
        "CHECKPOINT_PATH": str(folder),
        **options,
    }


def internal_name(database: str, index: str) -> str:
    """What pgsync calls its slot, its queue and (after a dot) its checkpoint."""
    return re.sub(r"[^0-9a-zA-Z_]+", "", f"{database.lower()}_{index}")


class Pgsync:
    """One pgsync and the index it keeps. Answers as ``measuring.Documents``.

    Args:
        endpoints: the local stack's Postgres and Redis.
        elasticsearch: URL of a 7.17.
        database: what it reads; ``bootstrap`` puts triggers, a view and a replication slot there.
        folder: its working folder, for schema and checkpoint.
        log: where its output goes; begun anew.
        document: what it keeps.
        options: further environment variables, by pgsync's names.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        elasticsearch: str,
        database: str,
        folder: Path,
        log: Path,
        document: Document = FLIGHT_CARD,
        options: Mapping[str, str] = OPTIONS,
    ) -> None:
        self.programs = environment.ensure()
        self.folder, self.log, self.document, self.database = folder, log, document, database
        self.name = internal_name(database, document.name)
        self.schema = folder / "schema.json"
        self.schema.write_text(json.dumps(document.schema(database), indent=1))
        self.log.write_bytes(b"")
        self.env = variables(endpoints, elasticsearch, folder, options)
        self.index = Index(elasticsearch, document.name)
        self.queue = redis.Redis.from_url(self.env["REDIS_URL"])
        self.process: subprocess.Popen[bytes] | None = None
        self.log_start = 0
        self.set_up = False

    def bootstrap(self, *options: str) -> None:
        """Run pgsync's one-time set-up: triggers, a view of the keys, a replication slot, the index.

        Raises:
            StackError: it failed; the end of its output is in the message.
        """
        self.set_up = True
        program = self._run("bootstrap", *options)
        try:
            code: int | None = program.wait(BOOTSTRAP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(program)
        if code != 0:
            ended = f"failed (exit code {code})" if code is not None else f"took more than {BOOTSTRAP_SECONDS:.0f} s"
            raise StackError(f"pgsync's bootstrap {' '.join(options)} {ended}{log_tail(self.log)}")

    def start(self) -> None:
        """Start the daemon: it fills the index, goes through the log of what came in the meantime, then follows."""
        self.log_start = self.log.stat().st_size
        self.process = self._run("pgsync", "--daemon")

    def follows(self) -> bool:
        """Does the daemon follow the database by now? Its first line about its queues says so."""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            return f"Sync {self.database}:{self.document.name} ".encode() in log.read()

    def stop(self) -> None:
        """End the daemon if it runs."""
        if self.process is not None:
            _end(self.process)
            self.process = None

    def teardown(self) -> None:
        """End it and take away its triggers, view, slot, queue, checkpoint and index, if any; the log stays."""
        self.stop()
        try:
            if self.set_up:
                self.bootstrap("--teardown")
        finally:
            self.set_up = False
            self.index.delete()
            self.queue.delete(f"queue:{self.name}", f"queue:{self.name}:meta")
            (self.folder / f".{self.name}").unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the servers; the daemon must have been stopped."""
        self.index.close()
        self.queue.close()

    def check(self) -> None:
        """StackError with the end of its log if the daemon has ended."""
        if self.process is not None and (code := self.process.poll()) is not None:
            raise StackError(f"pgsync ended by itself (exit code {code}){log_tail(self.log)}")

    def get(self, key: str) -> dict[str, Any] | None:
        """A document by key, as it is now."""
        return self.index.get(key)

    def count(self, field: str = "", value: str | int | None = None) -> int:
        """Documents, or those with a value in a field."""
        return self.index.count(field, value)

    def writes(self) -> int:
        """See ``Documents``."""
        return self.index.writes()

    def merges(self) -> int:
        """See ``Documents``."""
        return self.index.merges()

    def scan(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Key and content of every document."""
        return self.index.scan()

    def wait_for(self, key: str, predicate: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until a GET of ``key`` finds a document that the predicate likes; StackError if it never does."""

        def arrived() -> bool:
            document = self.get(key)
            return document is not None and predicate(document)

        wait_until(arrived, self.check, GET_SECONDS, f"the change of document {key}")

    def _run(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        command = [str(self.programs / "python"), str(self.programs / program), "--config", str(self.schema), *options]
        with self.log.open("ab") as log:
            # In a folder of its own: it would read settings from a file .env where it stands.
            return subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )


def _end(program: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL, to that very child."""
    if program.poll() is None:
        program.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            program.wait(STOP_SECONDS)
    if program.poll() is None:
        program.kill()
        program.wait()
