"""All that follow a view's changes or its matches by themselves while the pipeline runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import SecretStr

from cdc.pipeline.checks_push import sink_of
from cdc.pipeline.models import Pipeline

Sends = Literal["changes", "matches", "queries"]
To = Literal["webhook", "topic", "search"]


class Outlet(NamedTuple):
    """One of them.

    Attributes:
        name: unique in the file; of what keeps queries as a view has them ``queries.<view that they stand on>``.
        view, sink: what it follows, and the redis sink that keeps it.
        sends, to: what, and where to.
        url: of a webhook.
    """

    name: str
    view: str
    sink: str
    sends: Sends
    to: To
    url: SecretStr | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Where it is in the file, from outside to inside."""
        if self.sends == "changes":
            return ("push", self.name)
        if self.sends == "matches":
            return ("queries", self.view, "push", self.name)
        return ("queries", self.name.partition(".")[2], "saved")


def outlets(pipeline: Pipeline) -> Iterator[Outlet]:
    """Those of a checked file, in its order."""
    for name, hook in pipeline.push.items():
        yield Outlet(name, hook.view, sink_of(pipeline, name), "changes", "webhook", hook.url)
    for view, part in pipeline.queries.items():
        for name, one in part.push.items():
            to: To = "webhook" if one.topic is None else "topic"
            yield Outlet(name, view, part.changes, "matches", to, one.url)
        if part.saved is not None:
            yield Outlet(saved_name(view), part.saved.view, part.changes, "queries", "search")


def saved_name(view: str) -> str:
    """The name of what keeps a view's queries as another view has them: no webhook can be called that."""
    return f"queries.{view}"
