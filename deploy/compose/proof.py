"""``make test-compose``: docker-compose.yml brought up for real, its parts killed under load, its sinks compared.

Without a Docker engine that runs or can be started here it says SKIPPED and ends with exit code 0.
"""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import click
import psycopg
from elasticsearch import ApiError, Elasticsearch, TransportError
from psycopg.conninfo import make_conninfo

from cdc.errors import HeadwaterError, StackError
from deploy.compose import profiles
from deploy.compose.load import FIRST_ID, Load
from deploy.compose.system import PIPELINE, System
from deploy.images import base as local_base
from deploy.images.build import build
from deploy.images.catalog import IMAGES
from deploy.images.docker import docker
from deploy.images.engine import NoEngine, engine
from deploy.local.site import Site

# In this order; each is killed while the load goes on, stays away, and comes back.
KILLED = ("headwater", "redis", "elasticsearch", "connect", "kafka", "postgres", "redis-store")
AWAY_SECONDS = 3.0
RECOVERY_SECONDS = 240.0
FILL_SECONDS = 600.0
STOP_SECONDS = 90
PROJECT = "headwater-proof"
SEED = 6


def say(text: str) -> None:
    """A line with the time."""
    print(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S}  {text}", flush=True)


@click.command()
@click.option("--base", metavar="IMAGE", help="What images stand on; default: a Debian made here with debootstrap.")
@click.option("--profiles-only", is_flag=True, help="Only the profiles spark and registry: no server is killed.")
@click.option("--keep", is_flag=True, help="Leave everything up at the end, to look at it.")
def main(base: str | None, profiles_only: bool, keep: bool) -> None:
    """Build every image, bring docker-compose.yml up with the flights example, kill, compare, take down."""
    began = time.monotonic()
    # Told to end, it takes everything down first, as it does after a failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with engine(Site.find().home / "logs" / "dockerd.log", say):
            build((), base or local_base.ensure(say), say)
            proof = Proof(System(PROJECT))
            try:
                report = proof.begin()
                report |= {} if profiles_only else proof.broken()
                report |= proof.optional()
            except BaseException:
                for service in ("flights", "headwater", "connect", "spark-master", "spark-worker"):
                    proof.show(service)
                raise
            finally:
                if not keep:
                    proof.system.down()
    except NoEngine as none:
        print(f"\n{'*' * 100}\nSKIPPED: nothing was proven, for there is no Docker engine.\n{none}\n{'*' * 100}")
        return
    except (HeadwaterError, subprocess.SubprocessError) as error:
        print(f"COMPOSE FAILED {error}", flush=True)
        sys.exit(1)
    report["seconds"] = round(time.monotonic() - began)
    print(json.dumps(report, indent=2))
    kills = f"commits={report['commits']} kills={len(report['kills'])} " if "kills" in report else ""
    print(f"COMPOSE OK rows={report['rows_compared']} {kills}equal=yes")


class Proof:
    """The steps."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.conninfo = make_conninfo(
            host="127.0.0.1",
            port=system.port("postgres"),
            dbname="flights",
            user="flights_owner",
            password=system.environment["HEADWATER_SETUP_PASSWORD"],
        )

    def begin(self) -> dict[str, Any]:
        """Bring everything up and fill every sink; what was measured."""
        system = self.system
        report: dict[str, Any] = {"date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}
        report["image_mib"] = {
            image.name: round(int(docker("image", "inspect", "--format", "{{.Size}}", image.tag)) / 2**20)
            for image in IMAGES.values()
        }
        system.down()  # what an earlier run left has other passwords
        report["up_seconds"] = self._timed("compose up: servers, flights' data, capture, live queries", system.up)
        report["filled_seconds"] = self._timed("every sink has what is in the log", self.filled)
        return report

    def broken(self) -> dict[str, Any]:
        """Kill everything once under load, compare, stop cleanly; what was measured."""
        report: dict[str, Any] = {}
        with Load(self.conninfo, SEED) as load:
            report["kills"] = {service: self.kill(service) for service in KILLED}
            report["restarted_by_policy_seconds"] = self.crash()
        report["commits"], report["broken"] = load.committed, load.broken
        say(f"load ended: {load.committed} commits, {load.broken} broken by kills")
        self.system.caught_up(FILL_SECONDS)
        report["rows_compared"] = _rows(self.verify())
        report["stop"] = self.stop()
        report["stop_as_pid_1"] = self.stop_as_pid_1()
        return report

    def optional(self) -> dict[str, Any]:
        """The profiles, under load; afterwards every row is compared again."""
        with Load(self.conninfo, SEED + 1, 2 * FIRST_ID):
            report = profiles.prove(self.system, self.arrives, say)
        self.system.caught_up(FILL_SECONDS)
        return {"profiles": report, "rows_compared": _rows(self.verify())}

    def _timed(self, title: str, step: Any) -> float:
        began = time.monotonic()
        step()
        seconds = time.monotonic() - began
        say(f"{title}: {seconds:.0f} s")
        return round(seconds, 1)

    def filled(self) -> None:
        """All sinks are at the log's end, and Docker finds the container healthy."""
        self.system.caught_up(FILL_SECONDS)
        self.system.healthy("headwater", RECOVERY_SECONDS)

    def verify(self) -> Mapping[str, Any]:
        """``headwater verify``: every row of every sink against Postgres."""
        report: dict[str, Any] = self.system.ask("verify", "--wait", "120", ok=(0, 2), seconds=900)
        if not report["equal"]:
            raise StackError(f"sinks differ from Postgres: {json.dumps(report)[:3000]}")
        say(f"verify: {_rows(report):,} rows compared, equal")
        return report

    # -- breaking ----------------------------------------------------------------------------------------------------

    def kill(self, service: str) -> dict[str, float]:
        """docker kill, a pause, docker start; how long until it is healthy, and until a new commit is in the index."""
        container = self.system.container(service)
        docker("kill", container)
        time.sleep(AWAY_SECONDS)
        back = time.monotonic()
        docker("start", container)
        self.system.healthy(service, RECOVERY_SECONDS)
        healthy = time.monotonic() - back
        self.arrives()
        applied = time.monotonic() - back
        say(
            f"killed {service}: healthy again after {healthy:.1f} s, a new commit is in the index after {applied:.1f} s"
        )
        return {"healthy_seconds": round(healthy, 1), "applied_seconds": round(applied, 1)}

    def crash(self) -> float:
        """kill -9 of the process itself, not through Docker: the restart policy must bring it back."""
        state = self.system.inspect("headwater")["State"]
        began = time.monotonic()
        docker("exec", self.system.container("headwater"), "sh", "-c", CRASH, check=False)
        while self.system.inspect("headwater")["State"]["StartedAt"] == state["StartedAt"]:
            if time.monotonic() - began > RECOVERY_SECONDS:
                raise StackError("headwater was not restarted after its process was killed")
            time.sleep(0.2)
        self.arrives()
        seconds = time.monotonic() - began
        say(f"kill -9 of the runner's process: Docker restarted it, a new commit is in the index after {seconds:.1f} s")
        return round(seconds, 1)

    def arrives(self) -> None:
        """Commit a row and wait until Elasticsearch has it."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        mark, last = None, "nothing was tried"
        with Elasticsearch(f"http://127.0.0.1:{self.system.port('elasticsearch')}", request_timeout=10) as index:
            while time.monotonic() < deadline:
                try:
                    mark = mark or self._commit()
                    held = index.get(index="flights", id="1")["_source"]["air_time"]
                    if held == mark:
                        return
                    last = f"the index holds {held}, Postgres {mark}"
                except (psycopg.OperationalError, ApiError, TransportError) as error:  # not back yet
                    last = str(error)
                time.sleep(0.1)
        raise StackError(f"a commit did not arrive in the index: {last}")

    def _commit(self) -> int:
        mark = int(time.time()) % 10_000_000 + 1000
        with psycopg.connect(self.conninfo, autocommit=True, connect_timeout=5) as connection:
            connection.execute("UPDATE flights SET air_time = %s WHERE flight_id = 1", [mark])
        return mark

    # -- stopping ----------------------------------------------------------------------------------------------------

    def stop(self) -> dict[str, Any]:
        """docker stop: exit code 0, and the next start goes on after the last batch that was committed."""
        before = self.system.ask("status")
        container = self.system.container("headwater")
        began = time.monotonic()
        docker("stop", "-t", str(STOP_SECONDS), container)
        seconds = time.monotonic() - began
        code = self.system.inspect("headwater")["State"]["ExitCode"]
        docker("start", container)
        after = self.system.caught_up(RECOVERY_SECONDS)
        again = sum(flow["written"] for sink in after["sinks"] for flow in sink["flows"])
        kept = all(now >= then for now, then in zip(_batches(after), _batches(before), strict=True))
        say(f"docker stop: exit code {code} after {seconds:.1f} s; the next start wrote {again} rows again")
        if code != 0 or not kept or again:
            raise StackError(f"no clean stop: exit code {code}, checkpoint kept: {kept}, rows written again: {again}")
        return {"exit_code": code, "seconds": round(seconds, 1), "rows_written_again": again}

    def stop_as_pid_1(self) -> dict[str, Any]:
        """The same with no init in between: the runner is process 1, which the kernel spares unhandled signals."""
        docker("stop", "-t", str(STOP_SECONDS), self.system.container("headwater"))
        environment = self.system.inspect("headwater")["Config"]["Env"]
        options = [word for one in environment for word in ("--env", one)]
        mounts = [word for mount in self.system.inspect("headwater")["Mounts"] for word in ("--mount", _mount(mount))]
        name = f"{PROJECT}-pid1"
        network = f"{PROJECT}_default"
        docker(
            "run",
            "--detach",
            "--name",
            name,
            "--network",
            network,
            *options,
            *mounts,
            IMAGES["headwater"].tag,
            "run",
            PIPELINE,
        )
        try:
            deadline = time.monotonic() + RECOVERY_SECONDS
            while docker("exec", name, "headwater", "status", PIPELINE, "--alive", check=False) != "alive":
                if time.monotonic() > deadline:
                    raise StackError(f"it did not start: {docker('logs', '--tail', '20', name)}")
                time.sleep(1)
            first = docker("exec", name, "sh", "-c", "tr '\\0' ' ' </proc/1/cmdline")
            began = time.monotonic()
            docker("stop", "-t", str(STOP_SECONDS), name)
            seconds = time.monotonic() - began
            code = int(docker("inspect", "--format", "{{.State.ExitCode}}", name))
        finally:
            docker("rm", "--force", name, check=False)
        say(f"docker stop of process 1 ({first}): exit code {code} after {seconds:.1f} s")
        if code != 0 or "headwater run" not in first:
            raise StackError(f"process 1 ({first}) ended with {code}")
        return {"exit_code": code, "seconds": round(seconds, 1)}

    def show(self, service: str) -> None:
        """What a service printed last, when something failed."""
        try:
            say(f"--- {service}:\n{self.system.compose('logs', '--tail', '20', service)[-3000:]}")
        except (StackError, subprocess.SubprocessError) as error:
            say(f"--- {service}: {error}")


# The container's own `kill`: the process whose command line is the runner's, and not this line itself.
CRASH = (
    "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q 'bin/[h]eadwater run' && kill -9 ${p#/proc/}; done"
)


def _rows(report: Mapping[str, Any]) -> int:
    return sum(view["compared"] for sink in report["sinks"] for view in sink["views"])


def _batches(report: Mapping[str, Any]) -> list[int]:
    return [flow["batch_id"] for sink in report["sinks"] for flow in sink["flows"]]


def _mount(mount: Mapping[str, Any]) -> str:
    source = mount.get("Name") or mount["Source"]
    return f"type={mount['Type']},source={source},target={mount['Destination']}" + ("" if mount["RW"] else ",readonly")


if __name__ == "__main__":
    main()
