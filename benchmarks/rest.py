"""What a pipeline costs while nobody writes: processor time of the servers for it, and of `run`; and memory.

``python -m benchmarks.run rest``. The servers' share is what they use with the pipeline less what they use without one,
both after the same time at rest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.costs import mib_of
from benchmarks.peers.copies import copied
from benchmarks.peers.measuring import Settings
from benchmarks.piped import Piped
from benchmarks.processor import Processor, servers_of, since
from benchmarks.results import Measurement
from benchmarks.stack import ready
from cdc.errors import StackError
from deploy.local.stack import LocalStack

COMMAND = "python -m benchmarks.run rest"
FLIGHTS = 1_000
# Compilers of virtual machines go on for a while after the work has ended, and are no cost of rest.
SETTLE_SECONDS, REST_SECONDS = 90.0, 30.0
# Percent of a core by which more work may be measured as cheaper than less.
NOISE = 1.0
# The second figure is of so many sinks more, the third of so many pipelines more in one process.
MORE = 3
TEXT = """
version: 1
name: benchrestNUMBER
source:
  host: ${HEADWATER_POSTGRES_HOST}
  port: ${HEADWATER_POSTGRES_PORT}
  database: bench_rest
  user: headwater
  password: ${HEADWATER_SOURCE_PASSWORD}
  setup_user: flights_owner
  setup_password: ${HEADWATER_SETUP_PASSWORD}
  tables: [public.flights]
kafka: {bootstrap: "${HEADWATER_KAFKA}"}
connect: {url: "${HEADWATER_CONNECT}"}
views:
VIEWS
sinks:
SINKS
engine: {state_dir: "FOLDER/state"}
"""


def measure() -> list[Measurement]:
    """A pipeline of one sink, one of four, and four of one in one process."""
    stack = ready()
    time.sleep(SETTLE_SECONDS)
    without = sum(shares(Processor(servers_of(stack))).values())
    with copied(stack.endpoints, Settings(flights=FLIGHTS, database="bench_rest"), print):
        servers, runner, first = _at_rest(stack, 1)
        _, runner_more, more = _at_rest(stack, 1 + MORE)
        servers_beside, runner_beside, beside = _at_rest(stack, 1, 1 + MORE)
    return [
        _cpu("servers", _dearer(servers, without, "a pipeline", "none")),
        _cpu("runner", runner),
        _cpu("runner_further_sink", _dearer(runner_more, runner, "four sinks", "one") / MORE),
        _cpu("servers_further_pipeline", _dearer(servers_beside, servers, "four pipelines", "one") / MORE),
        _cpu("runner_further_pipeline", _dearer(runner_beside, runner, "four pipelines", "one") / MORE),
        _figure("idle_pipeline_rss_mib", first, "MiB"),
        _figure("idle_pipeline_rss_mib/further_sink", (more - first) / MORE, "MiB"),
        _figure("idle_pipeline_rss_mib/further_pipeline", (beside - first) / MORE, "MiB"),
    ]


def _cpu(name: str, value: float) -> Measurement:
    return _figure(f"idle_pipeline_cpu_percent/{name}", value, "% of a core")


def _dearer(more: float, less: float, what: str, without: str) -> float:
    """What more work costs; below zero only by noise, for nothing gets cheaper by it."""
    if more < less - NOISE:
        raise StackError(
            f"{what} at rest took {more:.1f} % of a core, and {without} {less:.1f} %",
            means="something else worked meanwhile: what rest costs can't be told from this, and nothing is written",
            fix="wait until compilers of servers that were started within the hour are done; then run it again",
        )
    return more - less


def _figure(name: str, value: float, unit: str) -> Measurement:
    return Measurement(name, round(value, 2), unit, 1, command=COMMAND)


def _at_rest(stack: LocalStack, sinks: int, pipelines: int = 1) -> tuple[float, float, float]:
    """Shares of a core that the servers and `run` take, and the memory of `run` and of all below it (MiB)."""
    with (
        tempfile.TemporaryDirectory(prefix="headwater-rest-") as folder,
        _running(stack, Path(folder), sinks, pipelines) as pid,
    ):
        time.sleep(SETTLE_SECONDS)
        both = shares(Processor({**servers_of(stack), "run": pid}))
        own = sum(share for name, share in both.items() if name.startswith("run"))
        print(", ".join(f"{name} {share:.1f}" for name, share in sorted(both.items(), key=lambda one: -one[1])))
        return sum(both.values()) - own, own, mib_of(pid)


def shares(processor: Processor) -> dict[str, float]:
    """Percent of a core, by process."""
    before = processor.seconds()
    time.sleep(REST_SECONDS)
    return {name: used / REST_SECONDS * 100 for name, used in since(before, processor.seconds()).items()}


@contextmanager
def _running(stack: LocalStack, folder: Path, sinks: int, pipelines: int) -> Iterator[int]:
    """Pipelines of so many caches in one process, which have caught up: the number of that `run`."""
    runs = [_pipeline(stack, folder / str(number), sinks, number) for number in range(pipelines)]
    first, *others = runs
    with ExitStack() as made:
        for run in runs:
            made.enter_context(run.applied())
        runner = made.enter_context(first.running(*(str(run.file) for run in others)))
        for run in runs:
            run.await_caught_up(runner)
        yield runner.pid


def _pipeline(stack: LocalStack, folder: Path, sinks: int, pipeline: int) -> Piped:
    folder.mkdir()
    names = [f"rest{pipeline}_{number}" for number in range(sinks)]
    views = "\n".join(f"  {name}: {{root: flights}}" for name in names)
    caches = "\n".join(f'  {name}: {{type: redis, url: "${{HEADWATER_REDIS_CACHE}}", view: {name}}}' for name in names)
    text = TEXT.replace("NUMBER", str(pipeline)).replace("VIEWS", views).replace("SINKS", caches)
    return Piped(stack, folder, text)


__all__ = ["measure"]
