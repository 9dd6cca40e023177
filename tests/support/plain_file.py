"""A pipeline file for tests of what needs one and nothing of what is in it: a table, a cache, and nobody answers."""

from __future__ import annotations


def plain_file(
    bootstrap: str = "127.0.0.1:1", *, options: str = "", kafka: str = "", connect: str = "", more: str = ""
) -> str:
    """The text of a pipeline file.

    Args:
        bootstrap: of the brokers.
        options: the entries of ``kafka.options``, as ``name: value, …``.
        kafka: others of ``kafka:``, ending with a comma.
        connect: those of ``connect.options``.
        more: a further line.
    """
    return f"""\
version: 1
name: p
source: {{host: 127.0.0.1, port: 1, database: d, user: u, tables: [public.t]}}
kafka: {{bootstrap: "{bootstrap}", {kafka} options: {{{options}}}}}
connect: {{url: "http://127.0.0.1:1", options: {{{connect}}}}}
{more}
views: {{t: {{root: t}}}}
sinks: {{cache: {{type: redis, url: "redis://127.0.0.1:1", view: t}}}}
"""
