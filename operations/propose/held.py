"""A proposal held against itself: what is written must load, and pass what `check` finds out without any server."""

from __future__ import annotations

import re
from dataclasses import replace

from cdc.catalogue import Catalogue
from cdc.errors import ConfigError, PipelineFileError
from cdc.pipeline import Pipeline, SearchSink
from cdc.pipeline.document import SyntaxProblem, decode, parse
from cdc.pipeline.loading import loads
from cdc.resolve.views import resolve_view
from connectors.survey import LeftOut
from operations.propose.writing import SETUP_PASSWORD, SOURCE_PASSWORD, Draft, written
from sinks.configure import check_mapping

# That are told where nothing is left; the others are of the same kind.
_REASONS = 5
_FILE = "the proposed file"
_PROBLEM = re.compile(rf"{_FILE}:(\d+):\d+: (.*)")
_VIEW = re.compile(r"  ([a-z][a-z0-9_]*):")


def held(made: Draft) -> Draft:
    """The draft without views that the file's own checks would refuse, each with that as its reason.

    Raises:
        ConfigError: no sink is left that would keep anything, or there are more tables than a file takes (terminal).
    """
    pipeline, left_out = None, list[LeftOut]()
    while pipeline is None:
        text = written(made)
        try:
            pipeline = loads(text, _FILE, {SOURCE_PASSWORD: "x", SETUP_PASSWORD: "x"})
        except PipelineFileError as error:
            _refuse_too_large(made, text)
            refused = _refused_by_the_file(text, error)
            if not refused:
                said = "; ".join(what for _, what in _PROBLEM.findall(error.what)[:_REASONS])
                raise ConfigError(
                    f"what is proposed for this database would not load ({said})",
                    means="nothing was written",
                    fix="name other tables with --tables, and tell us: this is a fault of `init`",
                ) from error
            made = _without(made, refused)
    catalogue = Catalogue(dict(made.survey.tables))
    for view in made.proposal.views:
        try:
            _refuse(pipeline, catalogue, view.name)
        except ConfigError as error:
            left_out.append(LeftOut(f"view {view.name}", error.what.partition(": ")[2] or error.what, error.fix))
    return _without(made, left_out) if left_out else made


def _refuse(pipeline: Pipeline, catalogue: Catalogue, name: str) -> None:
    """What `check` says of one view.

    Raises:
        ConfigError: it does not fit the tables, or a search server could not have it.
    """
    view = resolve_view(pipeline, catalogue, name)
    for sink, part in pipeline.sinks.items():
        if isinstance(part, SearchSink) and name in part.view_names:
            check_mapping(sink, part, [view])


def _refused_by_the_file(text: str, error: PipelineFileError) -> list[LeftOut]:
    """The views in whose lines the file is wrong, with the reasons; none if it is wrong elsewhere."""
    lines = text.splitlines()
    first, last = (lines.index(head) if head in lines else 0 for head in ("views:", "sinks:"))
    begins = {number: found[1] for number in range(first + 1, last) if (found := _VIEW.fullmatch(lines[number]))}
    wrong: dict[str, LeftOut] = {}
    for number, what in _PROBLEM.findall(error.what):
        at = int(number) - 1
        name = next((begins[line] for line in reversed(begins) if line <= at), None)
        if name is not None and at < last:
            wrong.setdefault(name, LeftOut(f"view {name}", what))
    return list(wrong.values())


def _without(made: Draft, refused: list[LeftOut]) -> Draft:
    gone = {one.name for one in refused}
    kept = [view for view in made.proposal.views if f"view {view.name}" not in gone]
    return filled(replace(made, proposal=replace(made.proposal, views=kept), left_out=[*made.left_out, *refused]))


def _refuse_too_large(made: Draft, text: str) -> None:
    """Say what to do about a database of which even the plainest file is more than one takes.

    Raises:
        ConfigError: so it is.
    """
    try:
        parse(decode(text.encode()))
    except SyntaxProblem as wrong:
        raise ConfigError(
            f"a pipeline file for {len(made.survey.tables):,} tables would not load: {wrong.problem.what}",
            means="nothing was written",
            fix="choose some with --tables, like --tables 'public.*'; several files may be several pipelines",
        ) from wrong


def filled(made: Draft) -> Draft:
    """The draft without sinks that would keep nothing: a file with such a one is refused.

    Raises:
        ConfigError: none is left (terminal).
    """
    empty = [kind for kind in made.sinks if (made.warehouse == [] if kind == "iceberg" else not made.proposal.views)]
    if not empty:
        return made
    if len(empty) == len(made.sinks):
        # Why not this table, or this view: other lines are about parts of tables, and about what is not captured.
        why = [one for one in made.left_out if one.name in made.survey.tables or one.name.startswith("view ")]
        shown = "; ".join(f"{one.name}: {one.why}" for one in why[:_REASONS])
        raise ConfigError(
            f"no table can be shown in {' or '.join(empty)}" + (f" ({shown})" if shown else ""),
            means="nothing was written",
            fix="name other tables, or another kind of sink; `headwater template` shows how a view is written",
        )
    left_out = [LeftOut(f"sink {kind}", "nothing is left that it could keep", "write a view for it") for kind in empty]
    sinks = tuple(kind for kind in made.sinks if kind not in empty)
    return replace(made, sinks=sinks, left_out=[*made.left_out, *left_out])
