"""Names that a connector got from the pipeline file, and that can't be changed under it."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.errors import SourceChanged
from cdc.pipeline import Pipeline
from connectors.names import Names


def refuse_renamed(pipeline: Pipeline, config: Mapping[str, str]) -> None:
    """Refuse a file whose slot, publication, schema or topics are not those of the connector that runs: it would leave
    what the connector has to nobody, and for a slot that means WAL without bound. Pure.

    Args:
        pipeline: the loaded file.
        config: the connector's, as it runs.

    Raises:
        SourceChanged: names each, as the connector has it and as the file does (terminal).
    """
    names = Names.of(pipeline)
    table = f".{names.signal}"
    named = {
        "slot.name": ("source.slot", pipeline.source.slot),
        "publication.name": ("source.publication", pipeline.source.publication),
        "topic.prefix": ("kafka.topic_prefix", pipeline.kafka.topic_prefix),
        # In our schema is also the list of what is captured: in another one there is none, and all begins anew.
        "signal.data.collection": ("source.schema", names.qualified(names.signal)),
    }
    others = []
    for option, (key, name) in named.items():
        asked = str(pipeline.connect.options.get(option, name))  # which win in the connector that is made of it, too
        if config.get(option, asked) != asked:
            others.append((key, config[option].removesuffix(table), asked.removesuffix(table)))
    if not others:
        return
    back = ", ".join(f"{key}: {has}" for key, has, _ in others)
    raise SourceChanged(
        f"pipeline {pipeline.name} is captured with {back}, and the file names"
        f" {', '.join(asked for _, _, asked in others)}",
        means="what it has under the old name would stay for ever, watched by nobody: a slot keeps WAL until the disk"
        " is full; nothing was changed",
        fix=f"put back `{back}`; or, to have the new name, `headwater drop FILE --topics` with the file as it was, then"
        " apply this one; or, if two files have one `name`, give one of them another",
    )
