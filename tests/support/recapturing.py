"""A recapture without servers: what stands for the database, the log and the builders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.pipeline import Pipeline, load
from connectors.actions import Action, Begins
from connectors.database.history import Moment
from connectors.database.publication import Publication
from connectors.gaps.source_gaps import Remembered
from connectors.servers import Servers
from operations import recapture as place
from operations.recapture import FILE, Recapture
from operations.run.source_watch import memory
from operations.state.folder import register_of

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views: {order: {root: orders}}
sinks:
  cache: {type: redis, url: "redis://127.0.0.1:1", view: order}
  other: {type: redis, url: "redis://127.0.0.1:1", view: order, key_prefix: "o:"}
engine: {state_dir: STATE}
"""


class World:
    """What stands for the database, the log and the builders.

    Attributes:
        file: the pipeline's.
        now: the database's place.
        done: what was done, in order.
        differing: sinks whose new generation does not equal Postgres.
        gap: what is wrong with the capture that is there.
        refused: why what the file names may not be dropped.
        publication: as it is.
        unfit: why the tables can't be captured, if none of them is yet.
        lost: topics that are the only copy of what they hold, until they are dropped.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.yaml"
        self.file.write_text(TEXT.replace("STATE", str(folder / "state")))
        self.now = Moment("7", 1, False, 100)
        self.done, self.differing = list[str](), set[str]()
        self.gap: Exception | None = None
        self.refused: Exception | None = None
        self.publication: Publication | None = None
        self.unfit: Exception | None = None
        self.lost = dict[str, Any]()

    @property
    def pipeline(self) -> Pipeline:
        """The file, loaded."""
        return load(self.file)

    def build(self, pipeline: Pipeline, _taken: Any, sink: str, _say: Any) -> bool:
        """A sink's next generation."""
        self.done.append(f"build {sink}")
        register = register_of(pipeline, sink)
        if register.newest("ready") is None:
            register.move(register.create("asked for", own=True).number, "ready")
        return sink not in self.differing

    def snapshot(self, _pipeline: Pipeline) -> Any:
        """Every table is read."""
        self.done.append("snapshot")
        return SimpleNamespace(done=True)

    def check(self, _pipeline: Pipeline, seen: Remembered) -> Remembered:
        """The log can be continued, unless the test says otherwise."""
        if self.gap is not None:
            raise self.gap
        return seen

    def plan(self, _pipeline: Pipeline, *, topics: bool) -> list[Any]:
        """What would be dropped, unless it is not this pipeline's."""
        assert topics
        if self.refused is not None:
            raise self.refused
        return []

    def apply(self, _pipeline: Pipeline, _show: Any, *, begins: Begins) -> None:
        """The connector is made."""
        begins(Action("connector", "shop", "create", None, {}, captures=True))
        self.done.append("apply")

    def drop(self, _pipeline: Pipeline, *, topics: bool, first: Sequence[Action] = ()) -> None:
        """What is to go first, then slot, connector and topics are gone."""
        assert topics
        for action in first:
            action.run(cast(Servers, SimpleNamespace()))
        self.done.append("drop")
        self.lost.clear()

    def fits(self, _servers: Any, *, anew: bool) -> None:
        """Whether the tables can be captured."""
        if anew and self.unfit is not None:
            raise self.unfit

    def note(self, **more: Any) -> None:
        """A recapture that was killed."""
        path = self.pipeline.engine.state_dir / Path("shop") / FILE
        path.write_text(json.dumps(asdict(Recapture(1.0, **more))))

    def seen(self, timeline: int = 1, followed: tuple[int, ...] = ()) -> None:
        """What `run` has noted of the source."""
        memory(self.pipeline).write_text(
            json.dumps(Remembered("7", timeline, 1, 1, 1, "r", "i", 3, followed).to_dict())
        )


def recaptured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A pipeline of two caches, whose database and log are a ``World``."""
    made = World(folder)
    monkeypatch.setattr(place, "_moment", lambda _: made.now)
    monkeypatch.setattr(place, "_build", made.build)
    session = SimpleNamespace(info=SimpleNamespace(server_version=170000))
    servers = SimpleNamespace(setup=session)
    monkeypatch.setattr(place, "open_servers", lambda *_: nullcontext(servers))
    monkeypatch.setattr(place, "refuse_unfit", made.fits)
    monkeypatch.setattr(place, "read_publication", lambda *_: made.publication)
    monkeypatch.setattr(place, "check_source", made.check)
    monkeypatch.setattr(place, "plan_drop_pipeline", made.plan)
    monkeypatch.setattr(place, "deleted_for_good", lambda _: dict(made.lost))
    monkeypatch.setattr(place, "drop", made.drop)
    monkeypatch.setattr(place, "apply", made.apply)
    monkeypatch.setattr(place, "wait_snapshot", made.snapshot)
    monkeypatch.setattr(place, "forget_source_note", lambda _: None)
    for sink in ("cache", "other"):
        flow = register_of(made.pipeline, sink).generation().flow_folder("main")
        (flow / "checkpoint").mkdir(parents=True)
    return made
