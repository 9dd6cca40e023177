"""The register of generations, what each was made of, and the lease on it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.errors import Behind, Fenced, StateError
from cdc.pipeline import Pipeline, loads
from cdc.pipeline.definition import changes, defined_as, definition_of
from operations.generations import lag, promote
from sinks.configure import plain_config
from spark.disk.lease import STOP_IT, Lease
from spark.disk.made_of import as_defined, define, outdated
from spark.disk.register import Register
from spark.disk.state import Generation
from tests.support.promoted import promoted

TEXT = """
version: 1
name: shop
source: {host: h, database: shop, user: u, password: secret, tables: [public.orders, public.customers, public.lines]}
kafka: {bootstrap: "b:9092"}
connect: {url: "http://c:8083"}
row_store: {url: "redis://:hidden@r:6379/0"}
views:
  card:
    root: orders
    refs: {customer: {table: customers, on: {customer_id: id}, columns: [{full_name: name}]}}
    children: {lines: {table: lines, on: {id: order_id}, order_by: "at desc", limit: 5}}
    aggregates: {total: {table: lines, on: {id: order_id}, value: "sum(x)", where: "y > 1"}}
    fields: {title: "upper(name)"}
    where: "id > 1"
sinks:
  search:
    {type: elasticsearch, url: "http://e:9200", password: hidden, user: u, view: card, bulk_count: 77,
     mapping: {title: {type: text}}}
  whole: {type: redis, url: "redis://r:6379/1", tables: all, ttl_seconds: 60}
  lake: {type: iceberg, catalog_uri: /c.db, warehouse: /w, namespace: n, tables: [orders]}
engine: {state_dir: STATE}
"""


def load(state: Path, *edits: tuple[str, str]) -> Pipeline:
    text = TEXT.replace("STATE", str(state))
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return loads(text, "shop.yaml", {})


def test_a_definition_is_plain_data_without_secrets_and_comes_back(tmp_path: Path) -> None:
    pipeline = load(tmp_path)
    for sink in pipeline.sinks:
        text = json.dumps(definition_of(pipeline, sink, ["orders"]))
        assert "hidden" not in text
        assert "secret" not in text
        other = load(
            tmp_path, ("upper(name)", "lower(name)"), ("limit: 5", "limit: 6"), ("namespace: n", "namespace: m")
        )
        back = defined_as(other, sink, json.loads(text))
        assert back.sinks[sink] == (
            pipeline.sinks[sink] if sink != "whole" else pipeline.sinks[sink].model_copy(update={"tables": ("orders",)})
        )
        if sink == "search":
            assert back.views["card"] == pipeline.views["card"]
            assert back.spec_hash(sink) == pipeline.spec_hash(sink) != other.spec_hash(sink)


def test_addresses_and_knobs_come_from_the_file_not_from_the_definition(tmp_path: Path) -> None:
    definition = definition_of(load(tmp_path), "search", ())
    now = load(tmp_path, ("http://e:9200", "http://f:9200"), ("bulk_count: 77", "bulk_count: 99"))
    back = defined_as(now, "search", definition).sinks["search"]
    assert (back.url, back.bulk_count) == ("http://f:9200", 99)  # type: ignore[union-attr]


def test_a_setting_that_a_definition_does_not_know_is_not_the_files(tmp_path: Path) -> None:
    """A generation was filled without routing: asked for one, it would look for its documents elsewhere."""
    before = load(tmp_path)
    definition = definition_of(before, "search", ())
    now = load(tmp_path, ("bulk_count: 77", "routing: id"))
    assert "routing" not in definition["sink"]
    assert defined_as(now, "search", definition).sinks["search"].routing is None  # type: ignore[union-attr]
    assert changes(definition, definition_of(now, "search", ())) == ["sink.routing added"]
    assert before.spec_hash("search") != now.spec_hash("search")


def test_a_search_sink_without_an_index_prefix_is_what_it_was_before_there_was_one(tmp_path: Path) -> None:
    """The values are those of the version before: else every sink would be outdated after the upgrade."""
    pipeline = load(Path("/state"))
    text = json.dumps(definition_of(pipeline, "search", ()))
    assert pipeline.spec_hash("search") == "ee93afa43cfadeb6"
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "de95f2dc88e68b82"
    empty = load(Path("/state"), ("bulk_count: 77", 'index_prefix: ""'))
    assert empty.spec_hash("search") == pipeline.spec_hash("search")
    assert json.dumps(definition_of(empty, "search", ())) == text


@pytest.mark.parametrize(("before", "after"), [("", "shop-"), ("shop-", ""), ("shop-", "other-")])
def test_an_index_prefix_is_the_next_generations(tmp_path: Path, before: str, after: str) -> None:
    """What has been written is where it was: a generation is looked for and dropped under its own name."""
    first, later = (load(tmp_path, ("bulk_count: 77", f'index_prefix: "{one}"')) for one in (before, after))
    register = Register(tmp_path, "shop", "search")
    define(register.generation(), first, ["public.orders"])
    assert outdated(first, register.generation()) == []
    assert outdated(later, register.generation()) != []
    living = as_defined(later, register.generation())
    assert plain_config(living, "search", 1, ["card"])["targets"]["card"]["index"] == f"{before}card"
    assert plain_config(later, "search", 2, ["card"])["targets"]["card"]["index"] == f"{after}card"


@pytest.mark.parametrize(("after", "kept"), [("", {"card"}), ("shop-", set())])
def test_readers_under_another_index_prefix_are_not_those_of_the_living_generation(
    tmp_path: Path, after: str, kept: set[str]
) -> None:
    register = Register(tmp_path, "shop", "search")
    define(register.generation(), load(tmp_path), ["public.orders"])
    register.generation().note_views(["card"])
    later = load(tmp_path, ("bulk_count: 77", f'index_prefix: "{after}"'))
    assert promote._Shown(later, "search", later.sinks["search"], 1, None).kept == kept


def test_a_generation_under_an_index_goes_on_there_when_the_file_has_a_prefix(tmp_path: Path) -> None:
    definition = definition_of(load(tmp_path, ("bulk_count: 77", "index: cards")), "search", ())
    now = load(tmp_path, ("bulk_count: 77", "index_prefix: shop-"))
    assert defined_as(now, "search", definition).sinks["search"].index_of("card") == "cards"  # type: ignore[union-attr]


def test_changes_are_said_in_words(tmp_path: Path) -> None:
    before = definition_of(load(tmp_path), "search", ())
    after = definition_of(
        load(tmp_path, ("upper(name)", "lower(name)"), ("title: {type: text}", "more: {type: text}")), "search", ()
    )
    assert changes(before, after) == [
        "views.card.fields.title changed",
        "sink.mapping.title removed",
        "sink.mapping.more added",
    ]
    assert changes(before, before) == []


def test_another_kind_of_sink_can_not_be_run_as_it_was(tmp_path: Path) -> None:
    definition = definition_of(load(tmp_path), "whole", ["public.orders"])
    now = load(
        tmp_path,
        (
            'whole: {type: redis, url: "redis://r:6379/1", tables: all, ttl_seconds: 60}',
            'whole: {type: elasticsearch, url: "http://e:9200", tables: all}',
        ),
    )
    with pytest.raises(StateError, match="was a sink of type redis"):
        defined_as(now, "whole", definition)


def test_a_generation_goes_on_as_it_was_defined(tmp_path: Path) -> None:
    first, later = load(tmp_path), load(tmp_path, ("id > 1", "id > 2"))
    register = Register(tmp_path, "shop", "search")
    define(register.generation(), first, ["public.orders"])
    assert outdated(first, register.generation()) == []
    assert outdated(later, register.generation()) == ["views.card.where changed"]
    assert as_defined(later, register.generation()).views["card"].where == "id > 1"
    assert define(register.generation(), later, ["public.orders"])["spec_hash"] == first.spec_hash("search")


def test_a_promotion_to_a_target_that_is_gone_does_not_keep_it_from_being_removed(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    register.create("test")
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    with pytest.raises(StateError, match="has not ended"):
        register.begin_retiring(2)
    register.give_up_promotion(3)  # another's stays
    assert register.promotion() is not None
    register.give_up_promotion(2)
    register.begin_retiring(2)
    assert register.get(2).stage == "retiring"
    with pytest.raises(StateError, match="is being removed"):
        register.move(2, "ready")  # whoever filled it has not noticed
    register.remove(2)
    with pytest.raises(StateError, match="was removed"):
        register.move(2, "ready")
    assert register.kept() == [1]


def test_who_promotes_too_early_is_told_that_the_next_generation_is_being_filled(tmp_path: Path) -> None:
    pipeline, register = load(tmp_path), Register(tmp_path, "shop", "search")
    promotable = ("ready", "previous", "living")
    assert promote.candidate(pipeline, "search", None, *promotable).number == 1
    register.create("test")
    with pytest.raises(StateError, match="generation 2 is still being filled") as refused:
        promote.candidate(pipeline, "search", None, *promotable)
    assert "readers go on seeing generation 1" in str(refused.value.means)
    assert promote.candidate(pipeline, "search", 1, *promotable).number == 1  # who names one is taken at his word
    register.move(2, "ready")
    assert promote.candidate(pipeline, "search", None, *promotable).number == 2
    promoted(register, 2)
    promoted(register, 1)
    register.create("another")
    with pytest.raises(StateError, match="generation 3 is still being filled"):  # not back to 2, which he left
        promote.candidate(pipeline, "search", None, *promotable)


def test_nobody_is_sent_to_a_generation_far_behind_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "behind", lambda *_: lag.MOST_BEHIND + 1)
    with pytest.raises(StateError, match="generation 2 is 10,001 records behind the log"):
        lag.refuse_far_behind(load(tmp_path), "search", 2)


def test_a_table_that_was_added_later_does_not_join_an_old_generation(tmp_path: Path) -> None:
    first = load(tmp_path)
    register = Register(tmp_path, "shop", "whole")
    define(register.generation(), first, ["public.orders", "public.customers"])
    assert as_defined(first, register.generation()).sinks["whole"].tables == ("public.customers", "public.orders")
    assert outdated(first, register.generation()) == []


def test_the_register_of_a_sink_that_never_was_rebuilt(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    assert [(entry.number, entry.stage) for entry in register.entries()] == [(1, "living")]
    assert register.kept() == [1]
    assert not register.folder.exists()


def test_promote_rollback_retire_and_numbers_are_never_used_twice(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    assert register.create("views.card changed").number == 2
    assert register.kept() == [1]
    register.move(2, "ready")
    assert (register.living(), register.kept()) == (1, [1, 2])
    promoted(register, 2)
    promoted(register, 2)
    assert [(e.number, e.stage) for e in register.entries()] == [(1, "previous"), (2, "living")]
    promoted(register, 1)
    assert [(e.number, e.stage) for e in register.entries()] == [(1, "living"), (2, "previous")]
    register.remove(2)
    assert register.create("again").number == 3
    with pytest.raises(StateError, match="no generation 2"):
        register.get(2)


def test_what_a_promotion_that_was_cut_may_have_shown_is_not_removed(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    with pytest.raises(StateError, match="generation 2 is filling"):
        register.begin_promotion(2, 1)
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    for number, why in ((2, "has not ended"), (1, "readers see"), (7, "there is no")):
        with pytest.raises(StateError, match=why):
            register.begin_retiring(number)
    register.begin_promotion(1, 2)  # it is taken back
    with pytest.raises(StateError, match="from generation 2 to 1 has not ended"):
        register.begin_retiring(2)
    register.promote(1)
    assert register.promotion() is None
    register.begin_retiring(2)
    with pytest.raises(StateError, match="generation 2 is retiring"):
        register.begin_promotion(2, 1)


@pytest.mark.parametrize("cut", [False, True])
def test_a_promotion_that_is_refused_for_what_it_lacks_leaves_none_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """After one that was killed while it waited, "nothing was changed" left that one's record, and made it young."""
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    register.move(2, "ready")
    if cut:
        register.begin_promotion(2, 1)
    begun = register.promotion()
    register.begin_promotion(2, 1)
    monkeypatch.setattr(promote, "level", lambda *_: "9 records")
    monkeypatch.setattr(promote, "_caught_up", lambda *_: "9 records")
    monkeypatch.setattr(promote, "failed_flow", lambda *_: None)
    monkeypatch.setattr("spark.disk.state.Generation.started", property(lambda _: True))
    with pytest.raises(Behind, match="generation 2 lacks") as refused:
        promote._level(load(tmp_path), register, 1, 2, begun, lambda _: None)
    assert "nothing was changed" in str(refused.value) and register.promotion() is None


def test_a_promotion_whose_readers_are_moved_meanwhile_is_not_forgotten(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    register.move_readers(2)
    register.give_up_promotion(2, unmoved=True)
    assert register.cut_promotion(0.0) == 2
    register.give_up_promotion(2)
    assert register.promotion() is None


def test_who_was_overtaken_takes_no_record_of_the_other_away(tmp_path: Path) -> None:
    """Two people promoted in opposite directions: views would have ended mixed, and nothing would have told of it."""
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    register.move_readers(2)
    register.begin_promotion(1, 2)
    for step in (register.refuse_other, register.move_readers, register.promote):
        with pytest.raises(StateError, match="of generation 2 was overtaken by that of generation 1"):
            step(2)
    under_way = register.promotion()
    assert under_way is not None and (under_way.number, under_way.moving) == (1, True)
    register.promote(1)
    assert register.living() == 1


def test_who_sleeps_until_readers_were_taken_back_changes_nothing(tmp_path: Path) -> None:
    """`run` had ended his promotion, somebody had gone back: the register then said what readers did not see."""
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    promoted(register, 2)
    (living,) = (entry for entry in register.entries() if entry.stage == "living")
    register.promote(2)  # he wakes up before that
    assert living in register.entries()
    promoted(register, 1)
    with pytest.raises(StateError, match="was given up, or ended, by somebody else") as refused:
        register.promote(2)
    assert "which one readers see" in str(refused.value)
    assert (register.living(), register.promotion()) == (1, None)


def test_a_promotion_to_what_was_removed_is_forgotten_and_never_ends_without_a_living_one(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    register.move(2, "ready")
    register.begin_promotion(2, 1)
    register.remove(2)
    assert register.promotion() is None
    with pytest.raises(StateError, match="no generation 2"):
        register.promote(2)
    assert register.living() == 1


def test_a_register_that_is_no_register_is_said_to_be_one(tmp_path: Path) -> None:
    register = Register(tmp_path, "shop", "search")
    register.create("x")
    (register.folder / "generations.json").write_text("{")
    with pytest.raises(StateError, match="can't be read"):
        register.living()


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_tokens_grow_with_each_holder_even_if_the_file_is_lost(tmp_path: Path) -> None:
    first = Lease(tmp_path / "g1", "sink a")
    token = first.take()
    first.release()
    second = Lease(tmp_path / "g1", "sink a")
    assert second.take() > token
    second.release()
    (tmp_path / "g1" / "lease.json").unlink()
    third = Lease(tmp_path / "g1", "sink a")
    assert third.take() >= token
    third.release()


def test_who_does_not_want_to_run_it_is_not_told_to_run_others(tmp_path: Path) -> None:
    first = Generation(tmp_path, "p", "a", 1)
    first.lock()
    try:
        with pytest.raises(StateError) as run:
            Generation(tmp_path, "p", "a", 1).lock()
        with pytest.raises(StateError) as drop:
            Generation(tmp_path, "p", "a", 1).lock(STOP_IT)
    finally:
        first.unlock()
    assert "--sink" in str(run.value.fix) and drop.value.fix == STOP_IT


def test_a_live_holder_is_not_taken_over(tmp_path: Path) -> None:
    first = Lease(tmp_path, "sink a")
    first.take()
    with pytest.raises(StateError, match=f"already run by process {os.getpid()}"):
        Lease(tmp_path, "sink a").take()
    first.release()


def test_a_holder_that_is_gone_is_taken_over_at_once(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "sink a")
    lease.take()
    holder = lease.holder()
    assert holder is not None
    lease._write(replace(holder, started=holder.started - 100))
    other = Lease(tmp_path, "sink a")
    assert other.take() > holder.token
    other.release()
    lease.release()


def test_a_silent_holder_is_taken_over_and_finds_out(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "sink a", expires=5)
    lease.take()
    holder = lease.holder()
    assert holder is not None
    lease._write(replace(holder, renewed=time.time() - 6))
    lease.check()
    other = Lease(tmp_path, "sink a", expires=5)
    other.take()
    with pytest.raises(Fenced, match="taken over"):
        lease.renew()
    with pytest.raises(Fenced):
        lease.check()
    lease.release()
    holder = other.holder()
    assert holder is not None and holder.pid == os.getpid() and other.busy(), "it is not the old one's to give back"
    with pytest.raises(StateError, match="already"):
        Lease(tmp_path, "sink a", expires=5).take()
    other.check()
    other.release()
    assert not other.busy()


def test_a_holder_on_another_machine_counts_as_alive_while_it_renews(tmp_path: Path) -> None:
    lease = Lease(tmp_path, "sink a")
    lease.take()
    holder = lease.holder()
    assert holder is not None
    lease._write(replace(holder, host="elsewhere", started=1.0))
    with pytest.raises(StateError, match="on elsewhere"):
        Lease(tmp_path, "sink a").take()
    lease.release()
