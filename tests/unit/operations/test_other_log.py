"""A generation that was filled from a database or a topic that was made anew is nothing to go on with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.catalogue import Catalogue, Column, Table
from cdc.errors import StateError
from cdc.pipeline import Pipeline, loads
from operations import opened
from operations.rebuild.chosen import OTHER_LOG, Chosen
from operations.rebuild.next_one import build_next
from operations.rebuild.rebuild import Rebuild
from operations.state.folder import register_of
from operations.state.frozen import freeze
from spark.disk.register import Register

TEXT = """\
version: 1
name: shop
source: {database: shop, user: u, tables: [public.orders]}
kafka: {bootstrap: "127.0.0.1:1"}
connect: {url: "http://localhost:1"}
views: {order: {root: orders, columns: [COLUMNS]}}
sinks: {cache: {type: redis, url: "redis://127.0.0.1:1", views: [order]}}
engine: {state_dir: STATE}
"""
FILE, TOPIC = Path("shop.yaml"), "shop.public.orders"
COLUMNS = tuple(Column(name, "integer", "int4", nullable=False, ordinal=at) for at, name in enumerate(("id", "n"), 1))
ORDERS = Table("public", "orders", COLUMNS, ("id",))


class Source:
    """Which database the address leads to, and which topic there is.

    Attributes:
        catalogue: of the database.
        topic: Kafka's id of the topic.
        retired: generations that were removed.
        built: generations that were filled: nobody needs Spark for that here.
    """

    def __init__(self) -> None:
        self.catalogue = Catalogue({"public.orders": ORDERS}, system_identifier="7", timeline=1)
        self.topic = "old"
        self.retired, self.built = list[int](), list[int]()

    def retire(self, pipeline: Pipeline, sink: str, number: int, _say: Any) -> None:
        """As ``retire``, without the targets."""
        self.retired.append(number)
        register_of(pipeline, sink).begin_retiring(number)
        register_of(pipeline, sink).remove(number)

    def fill(self, rebuild: Rebuild, *, auto: bool) -> dict[str, Any]:
        """As ``Rebuild.run``: equal at once."""
        entry = (rebuild.chosen.filled() if auto else None) or rebuild.chosen.to_fill()
        self.built.append(entry.number)
        return {"equal": True, "late": False, "generation": entry.number}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    made = Source()
    for place in ("chosen", "next_one"):
        monkeypatch.setattr(f"operations.rebuild.{place}.source_catalogue", lambda _: made.catalogue)
        monkeypatch.setattr(f"operations.rebuild.{place}.retire", made.retire)
    monkeypatch.setattr(opened, "topic_ids", lambda _pipeline, topics: dict.fromkeys(topics, made.topic))
    monkeypatch.setattr(Rebuild, "run", lambda rebuild, *, auto: made.fill(rebuild, auto=auto))
    monkeypatch.setattr(Chosen, "_unless_lost", lambda _self, entry: entry)
    monkeypatch.setattr(Chosen, "_cut_off", lambda *_: False)
    monkeypatch.setattr("operations.rebuild.next_one.signal.signal", lambda *_: None)
    yield made


def pipeline(state: Path, columns: str = "id") -> Pipeline:
    return loads(TEXT.replace("STATE", str(state)).replace("COLUMNS", columns), "shop.yaml", {})


def written(made: Pipeline, source: Source, number: int = 1) -> Register:
    """A generation that has written what the file says, of this database and topic; it is in the register."""
    build = opened.open_generation(made, source.catalogue, "cache", number)
    opened.accept(build)
    build.generation.unlock()
    commits = build.generation.checkpoint("main") / "commits"
    commits.mkdir(parents=True)
    (commits / "0").touch()
    return register_of(made, "cache")


def test_what_readers_see_already_is_not_built_once_more(tmp_path: Path, source: Source) -> None:
    """Killed after it had promoted, or built by somebody else meanwhile, the next attempt filled all of it again."""
    made, said = pipeline(tmp_path), list[str]()
    written(made, source)
    assert build_next(said.append, made, FILE, "cache")
    assert source.built == [] and said == ["generation 1, which readers see, is what is wanted"]
    assert build_next(said.append, pipeline(tmp_path, "id, n"), FILE, "cache")
    assert source.built == [2]


@pytest.mark.parametrize("anew", [{"system_identifier": "8"}, {"timeline": 2}, {}])
def test_what_readers_see_is_built_again_when_its_log_was_made_anew(
    tmp_path: Path, source: Source, anew: dict[str, Any]
) -> None:
    """`recapture` filled nothing after an upgrade, said that all equals Postgres, and `run` refused the generation
    that was left, with the advice to `recapture`."""
    made = pipeline(tmp_path)
    written(made, source)
    source.catalogue = replace(source.catalogue, **anew)
    source.topic = "old" if anew else "new"  # one of them is enough
    assert build_next(lambda _line: None, made, FILE, "cache")
    assert source.built == [2]
    register = register_of(made, "cache")
    assert register.get(2).why == OTHER_LOG
    register.remove(2)
    register.generation(1).folder.joinpath("identity.json").unlink()  # nobody knows of what it was filled
    assert build_next(lambda _line: None, made, FILE, "cache")
    assert source.built == [2, 3]


@pytest.mark.parametrize("reason", [None, "the key is (n)"])
def test_what_run_builds_for_an_altered_table_was_asked_for_by_nobody(
    tmp_path: Path, source: Source, reason: str | None
) -> None:
    """`generations` said "asked for" of it, and people looked for who had."""
    made = pipeline(tmp_path)
    register = written(made, source)
    freeze(register.generation(1), ORDERS, reason)
    assert build_next(lambda _line: None, made, FILE, "cache")
    assert (source.built, register.get(2).why) == ([2], "table public.orders was altered")
    register.remove(2)
    assert Chosen(made, FILE, "cache", lambda _line: None).to_fill().why == "asked for"


def test_a_promoted_standby_that_was_followed_is_the_same_database(tmp_path: Path, source: Source) -> None:
    made = pipeline(tmp_path)
    written(made, source)
    source.catalogue = replace(source.catalogue, timeline=2)
    (tmp_path / "shop" / "source.json").write_text('{"timeline": 2, "followed": [1]}')
    assert build_next(lambda _line: None, made, FILE, "cache") and source.built == []


@pytest.mark.parametrize("stage", ["filling", "ready"])
@pytest.mark.parametrize("topic", ["old", "new"])
def test_one_that_was_begun_from_a_topic_that_was_made_anew_makes_room(
    tmp_path: Path, source: Source, stage: Any, topic: str
) -> None:
    """`rebuild --auto` was advised, and opened the same one again, for ever: `retire` it, nobody said."""
    made, said = pipeline(tmp_path), list[str]()
    register = register_of(made, "cache")
    written(made, source, register.create("asked for", own=True).number)
    if stage == "ready":
        register.move(2, "ready")
    source.topic = topic
    assert build_next(said.append, made, FILE, "cache")
    assert (source.retired, source.built) == (([], [2]) if topic == "old" else ([2], [3]))
    words = "generation 2 can't be gone on with: the database or a topic that it was filled from was made anew"
    assert said == ([] if topic == "old" else [f"{words}: it is given up"])


def test_one_that_a_person_has_built_is_told_and_stays(tmp_path: Path, source: Source) -> None:
    """To verify it and to promote it was advised; promoted, nothing would ever change it again."""
    made = pipeline(tmp_path)
    register = register_of(made, "cache")
    written(made, source, register.create("asked for").number)
    register.move(2, "ready")
    source.topic = "new"
    with pytest.raises(StateError, match="generation 2 is ready, and can't be gone on with: the database or") as caught:
        build_next(lambda _line: None, made, FILE, "cache")
    fix = caught.value.fix or ""
    assert "headwater retire shop.yaml cache --generation 2" in fix and "promote" not in fix and source.retired == []
