"""The ``headwater`` command: a thin door; each verb lives in its own file of this folder.

Verbs are imported when they are called, so that ``headwater ps`` does not pay for Spark's import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any

import click

from cdc.errors import ClusterError, HeadwaterError
from cdc.wording import worded
from console.commands import with_file

# verb -> one line for `headwater --help`; the module console.cli.<verb> holds a click command named `command`.
VERBS = {
    "up": "start the local servers (Postgres, Kafka, Connect, Elasticsearch, Redis)",
    "down": "stop the local servers that `up` started",
    "ps": "show the local servers",
    "init": "write a pipeline file for a database: its tables, and documents along its foreign keys",
    "preview": "show the documents that a view makes, straight from Postgres",
    "template": "print an annotated pipeline file",
    "schema": "print the pipeline file's JSON Schema for editors",
    "check": "preflight: is the source database ready for change data capture?",
    "test": "test the views: rows in, documents out, no server",
    "plan": "show what apply would change",
    "apply": "create or change publication, slot, topics and connector",
    "run": "keep the sinks in sync",
    "status": "offsets, lag and last error of every sink",
    "tail": "print a view's changes as they come",
    "queries": "standing queries: list, register, remove, and print what enters and leaves",
    "serve": "answer over HTTP: a page for operators, and an API",
    "pause": "leave a sink alone for a maintenance window",
    "resume": "let a paused sink go on",
    "verify": "compare every sink with Postgres, row by row",
    "resnapshot": "read tables, or some of their rows, again",
    "recapture": "go on with a database that is another one by now: an upgrade, an older copy",
    "rebuild": "fill a new generation of a sink from offset 0, beside the living one",
    "generations": "list every sink's generations",
    "promote": "make readers see a generation",
    "rollback": "make readers see the previous generation again",
    "retire": "remove a generation that nobody reads",
    "explain": "why a document looks as it does: its rows, their positions, its version",
    "query": "ask the warehouse's tables in SQL, with what the log has besides",
    "letters": "what no sink would take: list, show, write again, forget",
    "as-of": "read every table of a warehouse's history as of one commit",
    "erase": "erase a deleted row everywhere: the log, history, snapshots, dead letters, files of servers",
    "pack": "pack the Python environment for a Spark cluster's executors",
    "drop": "remove what apply and run created",
}


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order a newcomer meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import ``console.cli.<verb>``; None for an unknown verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"console.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="headwater")
@click.pass_context
def cli(context: click.Context) -> None:
    """Headwater keeps Elasticsearch, Redis and Iceberg in sync with Postgres from its own change log.

    \b
    Exit codes: 0 all well · 1 error · 2 differences found (plan, test, verify, explain --expected,
    preview --diff, rebuild --auto, recapture), or something left (letters replay, letters webhooks send,
    erase), or SQL that is wrong (query).
    """
    if context.invoked_subcommand is None:  # asked for nothing: no error
        click.echo(context.get_help())


def main() -> None:
    """Console script: run a verb; an error of ours becomes a readable message and exit code 1."""
    try:
        cli.main(standalone_mode=False)
    except HeadwaterError as error:
        _last_word(error, f"error [{error.code}]: {_with_file(str(error), sys.argv[2:])}")
        sys.exit(1)
    except ConnectionError as error:  # py4j: where Java was, nobody listens any more
        _last_word(error, _without_java(error.strerror or str(error)))
        sys.exit(1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        what = f"error [{HeadwaterError.code}]: {place}{error.strerror or error}"
        fix = "look at that path and its rights (engine.state_dir, HEADWATER_HOME), and at the disk"
        _last_word(error, worded(what, fix=fix))
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(1)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except Exception as error:
        if _java_has_ended(error):  # py4j: it ended while it was asked something
            _last_word(error, _without_java(str(error)))
        elif not _told_as_json(error):
            raise
        sys.exit(1)


# So long a process may take that is being killed.
ENDING_SECONDS = 2.0


def _without_java(why: str) -> str:
    """What is said when Spark's Java machine is gone. Pure."""
    return worded(
        f"error [{ClusterError.code}]: a process that this one needs has ended: {why}",
        means="Spark's Java machine, most likely; nothing is lost, offsets are where they were",
        fix="start this command again; spark-*.log in the pipeline's state folder has its last words",
    )


def _java_has_ended(error: Exception) -> bool:
    """Whether a question to Java has failed because its process is gone (kill -9, or the system was out of memory).

    The one that was under way then fails with an error that py4j has for everything else as well, also for defects.
    """
    protocol, context = sys.modules.get("py4j.protocol"), sys.modules.get("pyspark.core.context")
    if protocol is None or context is None or not isinstance(error, protocol.Py4JError):
        return False
    process = getattr(context.SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(TimeoutExpired):  # its connections are closed a moment before it is gone
        process.wait(ENDING_SECONDS)
    return process.poll() is not None


def _with_file(text: str, words: Sequence[str]) -> str:
    """An error's commands with the pipeline file that this one was called with, to be copied as they are. Pure."""
    files = {word for word in words if word.endswith((".yaml", ".yml"))}
    return with_file(text, *files) if len(files) == 1 else text


def _last_word(error: BaseException, text: str) -> None:
    spoken = _log_lines()
    if spoken is None:
        click.echo(text, err=True)
    else:
        spoken.last_word(error, text)


def _told_as_json(error: BaseException) -> bool:
    spoken = _log_lines()
    return spoken is not None and spoken.last_defect(error)


def _log_lines() -> Any:
    """What `run` and `serve` say things with; None for verbs that have not loaded it, nor pay for it."""
    return sys.modules.get("console.log_lines")
