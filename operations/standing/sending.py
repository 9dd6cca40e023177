"""What `run` sends because of standing queries: matches to webhooks and topics, saved queries to the search server."""

from __future__ import annotations

from cdc.pipeline import Pipeline
from cdc.pipeline.outlets import Outlet, saved_name
from operations.push.delivery import Sending
from operations.push.events import Changes
from operations.push.lens import Lens
from operations.push.source import place_of
from operations.push.webhooks import destination_of
from operations.standing.place import standing_place
from operations.standing.saved import SearchServer
from operations.standing.seen import Seen

# Documents of saved queries that are taken at once: after a crash so many are looked at again.
SAVED_BATCH = 100


def sending_of(pipeline: Pipeline, outlet: Outlet) -> Sending:
    """One of a file's ``queries``, ready to be sent.

    Args:
        pipeline: the loaded file.
        outlet: of matches or of queries.

    Raises:
        UnknownName, ConfigError: what it follows is not there, or not yet (terminal).
    """
    if outlet.sends == "queries":
        return _saved(pipeline, outlet)
    part = pipeline.queries[outlet.view].push[outlet.name]
    return Sending(
        pipeline=pipeline.name,
        name=outlet.name,
        title=f"{outlet.to} {outlet.name}",
        place=standing_place(pipeline, outlet.view),
        to=destination_of(pipeline, outlet),
        sees=Seen(part.queries),
        about=part.chosen,
        batch=part.batch,
        documents=part.start == "snapshot",
        letters=pipeline.policy.dead_letters.values,
    )


def _saved(pipeline: Pipeline, outlet: Outlet) -> Sending:
    view = next(one for one in pipeline.queries if saved_name(one) == outlet.name)
    saved = pipeline.queries[view].saved
    assert saved is not None
    return Sending(
        pipeline=pipeline.name,
        name=outlet.name,
        title=f"queries of view {view}",
        place=place_of(pipeline, outlet.view, outlet.sink),
        to=SearchServer(standing_place(pipeline, view), saved.query),
        sees=Changes(Lens()),
        about="",
        batch=SAVED_BATCH,
        documents=True,
        letters=False,
        afresh=True,
    )
