"""The API and the page over a real pipeline with dead letters: what is asked answers as the verbs, and jobs mend."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.lettered import Lettered
from tests.support.local import ready
from tests.support.serving import Server

pytestmark = [pytest.mark.stack, pytest.mark.slow]
READ, OPERATE = "r" * 16, "o" * 16
SECRET = "secret-one"
# A process of its own, which loads the pipeline and, of a joined view, starts Spark.
JOB_SECONDS = 180.0


@dataclass
class World:
    made: Lettered
    server: Server

    def get(self, path: str, token: str = OPERATE, **asked: Any) -> Any:
        answer = httpx.get(self.server.url + path, params=asked, headers=bearer(token), timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def job(self, verb: str, **said: Any) -> dict[str, Any]:
        """Begin one, and wait for its end."""
        url = f"{self.server.url}/v1/jobs"
        answer = httpx.post(url, json={"verb": verb, **said}, headers=bearer(OPERATE), timeout=30)
        assert answer.status_code == 202, answer.text
        until = time.monotonic() + JOB_SECONDS
        while (job := self.get(f"/v1/jobs/{answer.json()['id']}"))["state"] == "running":
            assert time.monotonic() < until, job
            time.sleep(0.3)
        return dict(job)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = Lettered(ready(), tmp_path_factory.mktemp("page_api"))
    tokens = {"HEADWATER_READ_TOKEN": READ, "HEADWATER_OPERATE_TOKEN": OPERATE}
    with made.running(), Server(made.file, {**made.environment(), **tokens}) as server:
        made.readable(allowed=True)
        one = World(made, server)
        made.execute(f"UPDATE things SET code = '{SECRET}' WHERE id = 1")
        made.eventually(made.about, {("search", "thing", "1"), ("search", "card", "1")})
        yield one


def test_letters_are_listed_and_shown_and_what_rows_hold_is_for_a_role(world: World) -> None:
    told = world.get("/v1/letters", READ)
    verb = world.made.letters("list", "--each")
    assert {**told, "at": 0} == {**verb, "at": 0} and told["standing"] == 2
    for token, values, sees in ((READ, 1, False), (OPERATE, 0, False), (OPERATE, 1, True)):
        shown = world.get("/v1/letters/show", token, key="1", view=world.made.view("thing"), values=values)
        assert (SECRET in json.dumps(shown)) == sees and shown["letters"][0]["record"]["there"]
        page = world.get("/letters", token, key="1", sink="search", values=values, part="whole")
        assert (SECRET in page) == sees and "/trace?table=public.things" in page
    assert "failed to parse field [code]" in world.get("/letters", READ, part="whole")


def test_explain_preview_and_plan_answer_as_the_verbs(world: World) -> None:
    view = world.made.view("thing")
    asked = {"sink": "search", "key": "2", "view": view}
    whole = world.get("/v1/explain", values=1, expected=1, **asked)
    assert whole["held"]["document"]["code"] == "2" and whole["expected"]["equal"]
    assert whole.keys() == json.loads(world.made.run("explain", "search", "2", "--view", view, "--json")).keys()
    hidden = world.get("/v1/explain", READ, values=1, **asked)
    assert hidden["held"]["document"] is None and hidden["held"]["lsn"] == whole["held"]["lsn"]
    [document] = world.get("/v1/preview", view=view, key="2")["documents"]
    assert document["document"]["code"] == "2"
    differs = world.get("/v1/preview", view=view, key="1", diff=1, sink="search")
    assert not differs["equal"] and SECRET in json.dumps(differs)
    plan = world.get("/v1/plan", READ)
    assert {**plan} == json.loads(world.made.run("plan", "--json", ok=(0, 2)))


def test_what_differs_is_verified_repaired_and_known_afterwards(world: World) -> None:
    job = world.job("verify", sink="cache", wait=20)
    assert job["state"] == "done" and job["result"]["equal"], job
    assert job["lines"] and SECRET not in json.dumps(job)
    job = world.job("verify", sink="search", wait=0)
    assert job["state"] == "done" and not job["result"]["equal"], job
    kept = {one["sink"]: one for one in world.get("/v1/differences", READ)["sinks"]}
    assert kept["cache"]["equal"] and not kept["search"]["equal"]
    [thing] = [view for view in kept["search"]["views"] if view["view"] == world.made.view("thing")]
    assert thing["changed"] == ["1"] and SECRET not in json.dumps(kept)


def test_a_table_is_read_again_by_a_job(world: World) -> None:
    job = world.job("resnapshot", tables=["public.parts"])
    assert job["state"] == "done", job
    assert job["result"]["tables"]["public.parts"]["done"]
    refused = world.job("resnapshot", tables=["public.nowhere"])
    assert refused["state"] == "failed" and "public.nowhere" in refused["error"]["what"]


def test_letters_are_written_again_and_forgotten_by_jobs_that_outlive_the_server(world: World) -> None:
    job = world.job("replay-letters", sink="search", keys=["1"])
    assert job["state"] == "done" and (job["result"]["taken"], job["result"]["left"]) == (0, 2), job
    assert SECRET not in json.dumps(job)
    dropped = world.job("drop-letters", sink="search", keys=["1"])
    assert dropped["result"]["dropped"] == 2 and world.made.about() == set()
    world.server.kill()
    world.server.start()
    for one in (job, dropped):
        assert world.get(f"/v1/jobs/{one['id']}") == one
    world.made.execute("UPDATE things SET code = '1' WHERE id = 1")


def test_the_overview_tells_of_batches_tables_and_letters(world: World) -> None:
    world.made.execute("UPDATE things SET note = 'n' WHERE id < 5")
    until = time.monotonic() + 30
    while True:
        seen = world.get("/v1/overview", READ)["seen"]
        tables = {one["table"]: one for one in (seen or {}).get("tables") or []}
        batches = ((seen or {}).get("kept") or {"batches": {}})["batches"].get("search") or []
        if any(one["to_lsn"] for one in batches) and tables.get("public.things", {}).get("updated"):
            break
        assert time.monotonic() < until, seen
        time.sleep(0.5)
    assert tables["public.things"]["inserted"] >= 40
    assert all(sum(one["parts"].values()) >= one["ms"] for one in batches)
    assert batches[0]["at"] >= batches[-1]["at"]
    assert seen["kept"]["verified"]["cache"]["equal"] and seen["kept"]["letters"]["search"] is not None
    page = world.get("/sinks/search", READ)
    assert batches[0]["to_lsn"] is None or batches[0]["to_lsn"] in page
    assert "Operations by table" in world.get("/", READ)
