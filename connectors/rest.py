"""Kafka Connect's REST interface: idempotent calls with bounded patience, and failures in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from cdc import redirects, tls
from cdc.errors import ConnectError, ConnectUnavailable
from cdc.masking import mask_text
from cdc.pipeline import Connect
from cdc.polling import poll
from cdc.waits import waiting_for

# A worker that restarts is away for about 10 s, a rebalance takes a few: after that it is an outage to report.
PATIENCE_SECONDS = 30.0
REQUEST_SECONDS = 30.0
# Of one look among many, or where something else presses.
LOOK_SECONDS = 5.0
# Connect answers a restart before the statuses change; what is FAILED for so long has failed again.
RESTART_SECONDS = 10.0
POLL_SECONDS = 0.5
# Answers that pass by themselves: 409 a rebalance is under way, 5xx the worker restarts or could not ask its leader.
PASSING = {409, 500, 502, 503, 504}
# Characters of a page that is none of Connect's.
SHOWN = 120
EXACTLY_ONCE = (
    "set exactly.once.source.support=enabled on every worker, or allow duplicates (which the sinks withstand) with "
    "connect.options: {exactly.once.support: requested}"
)
# What a worker's policy says of each setting of our producer, which is none of the user's. (`All` is the default since
# Kafka 3.0; older workers, and hardened ones, have another.)
OVERRIDES = re.compile(r"policy does not allow .* to be overridden")
ALLOW_OVERRIDES = "set connector.client.config.override.policy=All on every worker"
# What there is to do about a connector that says RUNNING and reads nothing: `apply` leaves one alone that says so.
STANDS_STILL = "look into the worker's log; restart the connector in Kafka Connect, or its worker"

# Postgres before 18 decodes each change by the catalogue of its moment, and can't where there was no publication.
UNPUBLISHED = re.compile(r'\bpublication ".+" does not exist')

# Failures of Debezium's that say nothing to whoever reads them.
KNOWN = (
    (
        UNPUBLISHED,
        "there is no publication, or there was none when a change was written that comes now: `headwater apply FILE`"
        " makes it; if it goes on failing, `headwater resnapshot FILE --all` makes the slot anew",
    ),
    (
        re.compile(r"\bRecordTooLargeException\b.*\bbuffer\.memory\b"),
        "a row is larger than the memory of the connector's producer, and none is skipped: `headwater apply FILE` sets"
        " it by `kafka.max_message_bytes`, unless connect.options have another producer.override.buffer.memory",
    ),
    (
        re.compile(r"\bRecordTooLargeException\b"),
        "a row is larger than `kafka.max_message_bytes` lets through, and none is skipped: raise it in the file, then"
        " `headwater apply FILE`",
    ),
    (
        re.compile(r"IndexOutOfBoundsException: Index (\d+) out of bounds for length \1\b"),
        "it has miscounted columns, as it does when a table with a stored generated column is read again while it is"
        " written to (dbz#2020; it gets over it in a quiet moment, see docs/schema-changes.md)",
    ),
)


@dataclass(frozen=True)
class Status:
    """What Connect says of a connector. RUNNING can be a lie for a minute: compare with the slot.

    Attributes:
        connector: ``RUNNING``, ``PAUSED``, ``STOPPED``, ``FAILED``, ``UNASSIGNED``.
        tasks: the same for each task; empty while none is assigned.
        trace: first line and root cause of the first failure, else "".
    """

    connector: str
    tasks: tuple[str, ...]
    trace: str

    @property
    def running(self) -> bool:
        """The connector and at least one task, all of them, are RUNNING."""
        return self.connector == "RUNNING" and bool(self.tasks) and set(self.tasks) == {"RUNNING"}

    @property
    def failed(self) -> bool:
        """The connector or a task has FAILED; it does not start again by itself."""
        return "FAILED" in (self.connector, *self.tasks)


class ConnectClient:
    """One Kafka Connect cluster.

    Args:
        settings: the pipeline's ``connect``: url, optional user and password.
        patience_seconds: how long a call is tried again while the worker is away or rebalances.
        request_seconds: how long one request may take.
    """

    def __init__(
        self, settings: Connect, patience_seconds: float = PATIENCE_SECONDS, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self.url = settings.url.rstrip("/")
        self.patience_seconds, self.request_seconds = patience_seconds, request_seconds
        self.session = requests.Session()
        self.session.trust_env = False  # a proxy or a .netrc of the operator's shell has no say in this
        if settings.ca_certs:
            self.session.verify = settings.ca_certs
        if settings.user:
            self.session.auth = (settings.user, settings.password.get_secret_value() if settings.password else "")

    @classmethod
    @contextmanager
    def impatient(cls, settings: Connect) -> Iterator[ConnectClient]:
        """A client for one look, closed with the ``with``: a worker that does not answer is asked again at the next."""
        client = cls(settings, patience_seconds=0, request_seconds=LOOK_SECONDS)
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        """Close the connection."""
        self.session.close()

    def request(
        self, method: str, path: str, body: Any = None, *, missing: Any = None, patience: float | None = None
    ) -> Any:
        """Send one request, again and again while the failure may pass.

        Args:
            method: HTTP method; all that are used here are idempotent, or are guarded by the caller.
            path: under the worker's URL, quoted.
            body: sent as JSON.
            missing: returned for 404.
            patience: seconds, instead of the client's.

        Returns:
            The decoded answer; None when it has no body.

        Raises:
            ConnectUnavailable: no answer, or a rebalance, for longer than the patience (transient).
            ConnectError: Connect refused the request (terminal).
        """
        return self._patiently(lambda: self._once(method, path, body, missing), patience)

    def _patiently(self, attempt: Callable[[], Any], patience: float | None = None) -> Any:
        retrying = Retrying(
            stop=stop_after_delay(self.patience_seconds if patience is None else patience),
            wait=wait_exponential(multiplier=0.2, max=3.0),
            retry=retry_if_exception(lambda error: isinstance(error, ConnectUnavailable)),
            reraise=True,
        )
        with waiting_for(f"Kafka Connect at {mask_text(self.url)}"):
            return retrying(attempt)

    def _once(self, method: str, path: str, body: Any = None, missing: Any = None) -> Any:
        try:
            answer = self.session.request(
                method, self.url + path, json=body, timeout=self.request_seconds, allow_redirects=False
            )
        except OSError as error:  # requests' own are, and what it says of a file of ca_certs that is not there
            raise self._unreached(error) from error
        if answer.status_code == 404:
            if not _own(answer):
                raise ConnectUnavailable(
                    f"Kafka Connect knows no {path} yet",
                    means="a worker that has just been started answers so for some seconds, whatever is asked",
                    fix="run the same command again; if it stays so, correct connect.url",
                )
            return missing
        if answer.status_code in PASSING:
            raise ConnectUnavailable(
                f"Kafka Connect cannot do {method} {path} now ({answer.status_code}): {_message(answer)}",
                fix="run the same command again; see the worker's log if it stays so",
            )
        if answer.status_code >= 400:
            raise ConnectError(
                f"Kafka Connect refused {method} {path} ({answer.status_code}): {_message(answer)}",
                fix=_remedy(answer.status_code, _message(answer)),
            )
        if 300 <= answer.status_code < 400:
            raise self._led_away(answer)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise ConnectUnavailable(
                f"what answers at {mask_text(self.url)} is not Kafka Connect: {method} {path} brought no JSON, but "
                f"{_message(answer)[:SHOWN]!r}",
                means="a gateway in front of it shows a page of its own, for a login or while it is mended",
                fix="run the same command again; if it stays so, correct connect.url, or set user and password",
            ) from error

    def _led_away(self, answer: requests.Response) -> ConnectError:
        """A redirect is not followed: what was to be changed would be asked for there, and without its body."""
        where = redirects.led_to(answer.url, answer.headers.get("location", ""))
        kind = ConnectError if answer.status_code in redirects.MOVED else ConnectUnavailable
        return kind(
            f"Kafka Connect does not answer at {mask_text(self.url)}: it leads to {where} ({answer.status_code})",
            means="nothing was asked for there: on the way a change would become a question",
            fix=redirects.remedy("connect.url"),
        )

    def _unreached(self, error: OSError) -> ConnectError:
        where = f"Kafka Connect at {mask_text(self.url)}"
        if why := tls.refused(error):
            return ConnectError(f"{where} can't be trusted, or has no TLS: {why}", fix=tls.remedy("connect"))
        if not isinstance(error, requests.RequestException):
            return ConnectError(f"{where} was not asked: {error}", fix="correct connect.ca_certs, or let it be read")
        return ConnectUnavailable(
            f"Kafka Connect does not answer at {mask_text(self.url)}: {type(error).__name__}",
            fix="start the worker (`headwater up` for the local one), or correct connect.url",
        )

    def plugins(self, *, connectors_only: bool = True) -> dict[str, str]:
        """Class -> version, of connectors, or of converters and all other plugins too."""
        found = self.request("GET", f"/connector-plugins?connectorsOnly={str(connectors_only).lower()}")
        return {p["class"]: str(p.get("version", "")) for p in found}

    def config(self, name: str) -> dict[str, str] | None:
        """A connector's configuration, secrets included; None if there is no such connector."""
        found: dict[str, str] | None = self.request("GET", f"/connectors/{quote(name)}/config")
        return found

    def put_config(self, name: str, config: dict[str, str]) -> None:
        """Create or change a connector; the same again changes nothing."""
        self.request("PUT", f"/connectors/{quote(name)}/config", config)

    def create_stopped(self, name: str, config: dict[str, str]) -> None:
        """Create a connector that does not start yet, so that what was left under its name can be looked at."""
        body = {"name": name, "config": config, "initial_state": "STOPPED"}

        def attempt() -> None:
            # Looked for each time: what was made, and whose answer was lost, is refused with 409, as in a rebalance.
            if self._once("GET", f"/connectors/{quote(name)}/config") is None:
                self._once("POST", "/connectors", body)

        self._patiently(attempt)

    def validate(self, config: dict[str, str]) -> list[str]:
        """What Connect has against a configuration: ``option: message``."""
        plugin = quote(config["connector.class"])
        answer = self.request("PUT", f"/connector-plugins/{plugin}/config/validate", config)
        values = [entry["value"] for entry in answer["configs"]]
        return [f"{value['name']}: {message}" for value in values for message in value["errors"]]

    def status(self, name: str, patience: float | None = None) -> Status | None:
        """State of a connector and its tasks; None if there is none (or it was created a moment ago)."""
        raw = self.request("GET", f"/connectors/{quote(name)}/status", patience=patience)
        if raw is None:
            return None
        parts = [raw["connector"], *raw["tasks"]]
        traces = [first_line(part["trace"]) for part in parts if part.get("trace") and part["state"] == "FAILED"]
        states = tuple(task["state"] for task in raw["tasks"])
        return Status(raw["connector"]["state"], states, traces[0] if traces else "")

    def offset(self, name: str) -> dict[str, Any] | None:
        """Debezium's offset that Connect keeps for a connector, also while it is stopped; None if there is none.

        Raises:
            ConnectError: there is no such connector: Connect only tells for one that exists.
        """
        raw = self.request("GET", f"/connectors/{quote(name)}/offsets")
        if raw is None:
            raise ConnectError(f"there is no connector {name}", fix="run `headwater apply FILE`")
        kept = (entry["offset"] for entry in raw["offsets"] if entry.get("partition") and entry.get("offset"))
        return next(kept, None)

    def resume(self, name: str) -> None:
        """Start a paused or stopped connector; returns when a failure from before is not told any more."""
        self.request("PUT", f"/connectors/{quote(name)}/resume")
        self._wait_untold(name)

    def stop(self, name: str) -> None:
        """Shut the tasks down; needed before offsets can be deleted."""
        self.request("PUT", f"/connectors/{quote(name)}/stop")

    def restart(self, name: str) -> None:
        """Restart the connector and its tasks, failed or not; returns when the old failure is not told any more."""
        self.request("POST", f"/connectors/{quote(name)}/restart?includeTasks=true&onlyFailed=false")
        self._wait_untold(name)

    def _wait_untold(self, name: str) -> None:
        poll(lambda: self.status(name), lambda told: told is None or not told.failed, RESTART_SECONDS, POLL_SECONDS)

    def delete_offsets(self, name: str) -> None:
        """Forget how far a stopped connector has read. Deleting the connector alone keeps that for a later namesake."""
        self.request("DELETE", f"/connectors/{quote(name)}/offsets")

    def alter_offset(self, name: str, offset: dict[str, Any], partition: dict[str, str]) -> None:
        """Make a stopped connector go on from another place; ``partition`` names it where Connect knows none of it."""
        path = f"/connectors/{quote(name)}/offsets"
        entries = (self.request("GET", path) or {}).get("offsets") or [{"partition": partition}]
        body = {"offsets": [{"partition": entry["partition"], "offset": offset} for entry in entries]}
        self.request("PATCH", path, body)

    def delete(self, name: str) -> None:
        """Delete a connector; no error if there is none."""
        self.request("DELETE", f"/connectors/{quote(name)}")

    def wait(
        self, name: str, does: str, good: Callable[[Status], bool], seconds: float, *, failed_too: bool = False
    ) -> Status:
        """Poll a connector's status until ``good``.

        Args:
            name: the connector's.
            does: what is waited for, in a word.
            good: what is waited for.
            seconds: at most.
            failed_too: go on waiting when a task has failed.

        Raises:
            ConnectError: a task failed, with the first line of its trace; or the time is over.
        """

        def over(status: Status | None) -> bool:
            return status is not None and (good(status) or (status.failed and not failed_too))

        status = poll(lambda: self.status(name), over, seconds, POLL_SECONDS)
        if status is not None and good(status):
            return status
        if status is not None and status.failed and not failed_too:
            raise failure(name, status)
        seen = "unknown" if status is None else f"{status.connector}, tasks {list(status.tasks)}"
        raise ConnectError(
            f"connector {name} did not {does} in {seconds:.0f} s: it is {seen}",
            fix="look into the worker's log, then run the same command again",
        )

    def wait_running(self, name: str, seconds: float = 120.0) -> Status:
        """Wait until the connector and its task are RUNNING."""
        return self.wait(name, "start", lambda status: status.running, seconds)

    def wait_stopped(self, name: str, seconds: float = 60.0) -> Status:
        """Wait until the connector is STOPPED and has no task, failed or not."""
        gone = lambda status: status.connector == "STOPPED" and not status.tasks  # noqa: E731
        return self.wait(name, "stop", gone, seconds, failed_too=True)


def failure(name: str, status: Status) -> ConnectError:
    """The error for a failed connector or task."""
    return ConnectError(
        f"connector {name} has failed: {status.trace or 'no trace was given'}",
        means="changes wait in Postgres (its slot keeps the WAL); nothing is lost, but nothing moves",
        fix="remove the cause (`headwater check FILE` may name it), then `headwater apply FILE`, which restarts it",
    )


def first_line(trace: str) -> str:
    """A stack trace's first line, and its root cause if that says more; what it means, if that is known."""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = lines[0] if lines else ""
    said = f"{first} (cause: {causes[-1]})" if causes and causes[-1] not in first else first
    return next((f"{words}: {said}" for sign, words in KNOWN if sign.search(said)), said)


def _own(answer: requests.Response) -> bool:
    """Whether Connect itself has answered, and not the server in front of it, which is there earlier."""
    try:
        said = answer.json()
    except ValueError:
        return False
    return isinstance(said, dict) and "error_code" in said


def _message(answer: requests.Response) -> str:
    try:
        text = str(answer.json().get("message", ""))
    except (ValueError, AttributeError):
        text = answer.text
    return " ".join(text.split())[:600]


def _remedy(code: int, message: str) -> str:
    if code in (401, 403):
        return "set connect.user and connect.password"
    return of_the_worker(message) or (
        "correct what the message names (connect.options are merged into the connector's configuration last)"
    )


def of_the_worker(message: str) -> str:
    """The way out of a refusal of our configuration that lies in the worker's own settings; empty for any other."""
    if OVERRIDES.search(message):
        return ALLOW_OVERRIDES
    return EXACTLY_ONCE if "exactly" in message.lower() else ""
