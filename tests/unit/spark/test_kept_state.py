"""What version 0.1 left behind is complete and readable: upgrades are tested against it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sinks.rowstore.key_names import namespace
from spark.disk import filling
from spark.disk.checkpoint import check_checkpoint, committed_offsets
from spark.disk.register import Register
from spark.disk.status import FlowStatus
from tests.support import redis_dump
from tests.support.kept import FIXTURES, Kept, records

VERSION = "state_0_1"
FLOWS = {"cache": ["buyer", "card", "main"], "search": ["buyer", "card"]} | {
    "warehouse": ["customers", "items", "orders"]
}
MOST_BYTES = 300 * 1024


@pytest.fixture(params=["first", "second"])
def kept(request: pytest.FixtureRequest) -> Kept:
    return Kept(VERSION, request.param)


def generations(kept: Kept, sink: str) -> list[int]:
    return [1, 2] if (kept.moment, sink) == ("second", "cache") else [1]


def test_it_is_small_and_names_no_machine() -> None:
    files = [path for path in (FIXTURES / VERSION).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        text = path.read_text()
        assert not re.search(r"/tmp/|/home/|/root/|127\.0\.0\.1:(?!15)\d{4,5}\b", text), path


def test_the_state_folder_is_whole(kept: Kept, tmp_path: Path) -> None:
    kept.restore_state(tmp_path)
    for sink, flows in FLOWS.items():
        register = Register(tmp_path / "state", "keepsake", sink)
        assert sorted(entry.number for entry in register.entries()) == generations(kept, sink)
        assert register.living() == generations(kept, sink)[-1]
        for number in generations(kept, sink):
            generation = register.generation(number)
            assert generation.flows() == flows
            known = generation.known()
            assert known is not None and known.database == "keepsake" and len(known.topic_ids) > 0
            assert (generation.folder / "definition.json").exists()
            for flow in flows:
                check_checkpoint(generation.checkpoint(flow), "")
                batch, offsets = committed_offsets(generation.checkpoint(flow))
                status = FlowStatus.read(generation.flow_folder(flow))
                assert (batch >= 0 or flow == "card") and offsets
                assert status is not None and status.state == "stopped"
                joined = {"fill.json", "layout.json", "rowstore.json", "phase.json"}
                there = {path.name for path in generation.flow_folder(flow).iterdir()}
                assert joined <= there if flow == "card" and sink != "warehouse" else not joined & there
                filled = filling.load(generation.flow_folder(flow))
                assert (filled is not None) == filling.is_live(generation.flow_folder(flow)) == (joined <= there)
                assert filled is None or (filled.done and filled.slices > 0 and filled.at > 0)


def test_the_row_store_has_every_kind_of_key(kept: Kept) -> None:
    entries = kept.read("rowstore")
    views = {(sink, number) for sink in ("search", "cache") for number in generations(kept, sink)}
    wanted = {namespace("keepsake", sink, "card", number) for sink, number in views}
    assert set(redis_dump.namespaces(entries)) == wanted
    for prefix in wanted:
        kinds = {entry["key"].removeprefix(prefix)[0] for entry in entries if entry["key"].startswith(prefix)}
        assert kinds >= set("rictdzvo"), prefix
    assert {entry["type"] for entry in entries} == {"string", "hash", "set", "zset"}
    assert any(entry["ttl_ms"] > 0 for entry in entries), "no mark of a deleted row"


def test_the_row_store_can_be_read_in_memory(kept: Kept) -> None:
    store = kept.row_store("search", "card")
    (held,) = store.servers.nodes
    [group] = {key[1:] for key in held if key.startswith("t") and key.endswith("{5}")}
    given = held[f"c{group}"]
    assert len(given) > 0 and store.totals([group])[0]
    assert all(held[key] for key in held if key.startswith("r"))
    assert all(isinstance(held[key], int) for key in held if key.startswith("v:"))
    assert store.waiting() == 0
    assert store.noted().format == 1
    contributed = [json.loads(value) for value in given.values()]
    assert all(len(one) == 6 for one in contributed), "one for each aggregate"


def documents(kept: Kept, prefix: str) -> dict[str, Any]:
    found = {entry["key"]: entry for entry in kept.read("cache") if entry["key"].startswith(prefix)}
    return {
        key: json.loads(redis_dump.raw(entry["value"])) for key, entry in found.items() if entry["type"] == "string"
    }


def test_the_cache_has_its_generations(kept: Kept) -> None:
    second = kept.moment == "second"
    for view in ("card", "buyer", "item"):
        plain, hidden = f"keepsake:{view}:", f"keepsake:{view}@1:"
        assert len(documents(kept, plain)) > 3
        assert bool(documents(kept, hidden)) is second, "the previous generation keeps its documents aside"
        if second:
            aside = {key.removeprefix(hidden): value for key, value in documents(kept, hidden).items()}
            shown = {key.removeprefix(plain): value for key, value in documents(kept, plain).items()}
            assert aside == shown, "both are up to date"
    assert any(entry["key"].startswith("hw:v:{") for entry in kept.read("cache"))
    names = {one["name"] for one in documents(kept, "keepsake:buyer:").values()}
    assert ("Renamed again" if second else "Renamed") in names and "Customer 4" not in names


def test_the_search_index_shows_what_the_cache_shows(kept: Kept) -> None:
    for view in ("card", "buyer"):
        [index] = [one for one in kept.read("search") if view in one["aliases"]]
        shown = {one["_id"]: one["_source"] for one in index["documents"]}
        prefix = f"keepsake:{view}:"
        assert shown == {key.removeprefix(prefix): value for key, value in documents(kept, prefix).items()}
        assert all(one["_version"] > 0 for one in index["documents"])


def test_the_topics_can_be_read() -> None:
    found = records(VERSION)
    tables = {record["topic"]: 0 for record in found}
    assert {f"keepsake.public.{table}" for table in ("customers", "orders", "items")} < tables.keys()
    assert any(record["key"] and record["value"] is None for record in found), "no tombstone"
    rows = [record for record in found if record["topic"] == "keepsake.public.items" and record["value"]]
    assert all(json.loads(record["value"])["op"] in "rcud" for record in rows)
    places = [(record["topic"], record["partition"], record["offset"]) for record in found]
    assert len(set(places)) == len(places) and all(record["timestamp_ms"] > 0 for record in found)


def test_it_tells_how_it_was_made() -> None:
    text = (FIXTURES / VERSION / "README.md").read_text()
    assert "python -m tests.fixtures.make_state 6aa1ae7" in text
    named = set(re.findall(r"`(?:…/)?([a-z]+\.(?:json|yaml|sql))`", text))
    there = {
        path.name
        for folder in (FIXTURES, FIXTURES / VERSION, FIXTURES / VERSION / "first")
        for path in folder.iterdir()
    }
    assert named <= there and len(named) >= 7
