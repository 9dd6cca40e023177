"""``headwater explain`` and the source's part of ``status``, over a running pipeline of all kinds of sinks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from redis import Redis
from ruamel.yaml import YAML

from examples.social import load as social
from tests.support.joined import Joined
from tests.support.servers import servers
from tests.support.source import eventually

pytestmark = [pytest.mark.stack, pytest.mark.sampled(part=0)]

VIEWS = """
author:
  root: users
  columns: [user_id, handle]
  children:
    tweets: {table: tweets, on: {user_id: author_id}, order_by: "tweet_id desc", limit: 3, columns: [tweet_id, body]}
  aggregates:
    tweets_total: {table: tweets, on: {user_id: author_id}, value: count(*)}
    letters: {table: tweets, on: {user_id: author_id}, value: sum(length(body))}
    newest: {table: tweets, on: {user_id: author_id}, value: max(posted)}
card:                                    # no Spark SQL
  root: tweets
  refs: {author: {table: users, on: {author_id: user_id}}}
  aggregates: {likes: {table: likes, on: {tweet_id: tweet_id}, value: count(*)}}
user: {root: users}
"""
# The connector fails at a row larger than this.
MAX_MESSAGE = 100_000


class Explained(Joined):
    """The social example with more views, an index and a warehouse beside it."""

    def write_pipeline(self) -> None:
        super().write_pipeline()
        yaml = YAML(typ="safe")
        document = yaml.load(self.file.read_text())
        document["views"] |= {self.view(name): view for name, view in yaml.load(VIEWS).items()}
        document["sinks"]["social_cache"]["views"].append(self.view("card"))
        document["kafka"]["max_message_bytes"] = MAX_MESSAGE
        search = {"type": "elasticsearch", "url": self.stack.endpoints.elasticsearch_url}
        document["sinks"] |= {
            "search": search | {"views": [self.view("author"), self.view("user")]},
            "lake": {
                "type": "iceberg",
                "catalog_uri": str(self.folder / "lake.db"),
                "warehouse": str(self.folder / "lake"),
                "namespace": self.name,
                "tables": ["public.users"],
                "trigger_seconds": 1,
            },
        }
        with self.file.open("w") as out:
            YAML().dump(document, out)

    def run(self, verb: str, *options: str, ok: tuple[int, ...] = (0,)) -> str:
        """The tables are closed to the pipeline's role; only --expected, whose business it is, gets to read them."""
        if "--expected" not in options:
            return super().run(verb, *options, ok=ok)
        self.readable(allowed=True)
        try:
            return super().run(verb, *options, ok=ok)
        finally:
            self.readable(allowed=False)

    def explain(self, *arguments: str, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.run("explain", *arguments, "--json", ok=ok))
        return report


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explained]:
    """Filled, and no longer running: what is broken here stays broken."""
    stack = servers()
    stack.up()
    made = Explained(stack, tmp_path_factory.mktemp("explain"), loaders=[social])
    made.prepare()
    try:
        made.run("run", "--until-caught-up", "--timeout", "300")
        yield made
    finally:
        made.close()


def by_path(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in report["rows"]}


def test_every_row_of_a_joined_document_names_its_record(pipeline: Explained) -> None:
    view = pipeline.view("tweet_card")
    with psycopg.connect(pipeline.conninfo) as connection:
        tweet, above = connection.execute(
            "SELECT tweet_id, reply_to FROM tweets WHERE reply_to IS NOT NULL ORDER BY 1 LIMIT 1"
        ).fetchone()
    began = time.monotonic()
    report = pipeline.explain("social_cache", str(tweet), "--view", view)
    assert time.monotonic() - began < 20  # two seconds on a machine of one's own: no Spark
    assert report["found"] and report["state"] in ("stopped", "finished")
    rows = by_path(report)
    assert set(rows) >= {view, f"{view}.author", f"{view}.in_reply_to", f"{view}.in_reply_to.author"}
    assert (rows[f"{view}.in_reply_to"]["table"], rows[f"{view}.in_reply_to"]["key"]) == ("public.tweets", str(above))
    for row in rows.values():
        assert row["state"] == "shown" and row["topic"].endswith(row["table"]) and row["lsn"].count("/") == 1
        assert row["partition"] >= 0 and row["offset"] >= 0
    assert report["row_store"]["equal"] and not report["row_store"]["differences"]
    # Of a document that nothing has changed since its fill no version was raised.
    assert report["row_store"]["version"] in (None, report["held"]["version"])
    likes = next(total for total in report["aggregates"] if total["path"] == f"{view}.likes")
    assert likes["value"] == likes["values"] == report["held"]["document"]["likes"]


def test_children_aggregates_and_what_the_limit_leaves_out(pipeline: Explained) -> None:
    view = pipeline.view("author")
    report = pipeline.explain("search", "1", "--view", view)
    tweets, total = report["held"]["document"]["tweets"], report["held"]["document"]["tweets_total"]
    shown = [by_path(report)[f"{view}.tweets[{at}]"]["key"] for at in range(3)]
    assert shown == [str(tweet["tweet_id"]) for tweet in tweets]
    assert report["left_out"] == {f"{view}.tweets": total - 3}
    letters = next(total for total in report["aggregates"] if total["path"].endswith(".letters"))
    assert (letters["known"], letters["value"], letters["values"]) == (False, None, total)
    assert report["row_store"]["equal"]


def test_the_report_has_the_documented_keys(pipeline: Explained) -> None:
    page = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text(encoding="utf-8")
    shown = json.loads(page.partition("\n## explain\n")[2].partition("```json\n")[2].partition("```")[0])
    report = pipeline.explain("search", "1", "--view", pipeline.view("user"), "--expected")
    assert report.keys() == shown.keys()
    assert report["expected"].keys() == shown["expected"].keys()


def test_expected_is_built_from_postgres(pipeline: Explained) -> None:
    for sink, key, view in (
        ("social_cache", "1", "home_timeline"),
        ("social_cache", "1", "tweet_card"),
        ("social_cache", "1", "card"),
        ("search", "1", "author"),
        ("search", "1", "user"),
    ):
        report = pipeline.explain(sink, key, "--view", pipeline.view(view), "--expected")
        assert report["expected"] == {
            "document": report["held"]["document"],
            "why": "",
            "equal": True,
            "differences": [],
        }
    assert pipeline.explain("lake", "1", "--expected")["expected"]["equal"]


def test_a_view_of_one_table_and_a_warehouse_tell_their_position(pipeline: Explained) -> None:
    for report in (pipeline.explain("search", "1", "--view", pipeline.view("user")), pipeline.explain("lake", "1")):
        [row] = report["rows"]
        assert row["position"] == report["held"]["version"] and row["lsn"] == report["held"]["lsn"]
        assert row["offset"] is None and report["row_store"] is None
        assert report["held"]["document"]["user_id"] == 1


def test_a_changed_sink_is_found_with_exit_code_2(pipeline: Explained) -> None:
    view = pipeline.view("card")
    name = f"{pipeline.name}:{view}:2"
    with Redis.from_url(pipeline.stack.endpoints.redis_cache_url) as cache:
        good = cache.get(name)
        assert isinstance(good, bytes)
        document = orjson.loads(good)
        bad = {**document, "likes": 999, "author": {**document["author"], "handle": "someone"}, "extra": 1}
        cache.set(name, orjson.dumps(bad))
        try:
            report = pipeline.explain("social_cache", "2", "--view", view, "--expected", ok=(2,))
            text = pipeline.run("explain", "social_cache", "2", "--view", view)  # without --expected no verdict
        finally:
            cache.set(name, good)
    differing = {one["field"]: one for one in report["expected"]["differences"]}
    assert set(differing) == {"likes", "author.handle", "extra"}
    assert differing["author.handle"] == {
        "field": "author.handle",
        "sink": "someone",
        "expected": document["author"]["handle"],
    }
    assert "expected" not in differing["extra"]
    assert {one["field"] for one in report["row_store"]["differences"]} == set(differing)
    assert 'author.handle: the sink has "someone", row store has' in text


def test_a_deleted_row_is_told(pipeline: Explained) -> None:
    view = pipeline.view("card")
    with psycopg.connect(pipeline.conninfo, autocommit=True) as connection:
        connection.execute("INSERT INTO users VALUES (901, 'gone', 'Gone')")
        connection.execute("INSERT INTO tweets VALUES (9001, 901, now(), 'one', NULL), (9002, 901, now(), 'two', 9001)")
        connection.execute("DELETE FROM tweets WHERE tweet_id = 9002")
    pipeline.run("run", "--until-caught-up", "--timeout", "300")
    report = pipeline.explain("social_cache", "9002", "--view", view, "--expected")
    [row] = report["rows"]
    assert (report["held"], row["state"]) == (None, "deleted") and row["lsn"]
    assert report["expected"]["equal"] and "no such row" in report["expected"]["why"]
    assert pipeline.explain("social_cache", "9001", "--view", view)["row_store"]["equal"]


def test_a_key_that_is_nowhere_is_said_and_no_error(pipeline: Explained) -> None:
    text = pipeline.run("explain", "social_cache", "77777", "--view", pipeline.view("card"), "--expected")
    assert "nothing has this key: not the sink nor the row store nor Postgres" in text
    text = pipeline.run("explain", "search", " 1", "--view", pipeline.view("user"))
    assert "did you mean 1?" in text
    said = pipeline.run("explain", "lake", "no number", "--expected")
    assert "no number is not a bigint" in said and "nothing has this key" not in said


def test_status_tells_how_the_source_is(pipeline: Explained) -> None:
    source = json.loads(pipeline.run("status", "--json"))["source"]
    assert (source["connector"], source["tasks"], source["slot_active"]) == ("RUNNING", ["RUNNING"], True)
    assert source["slot_lag_bytes"] >= 0 and source["error"] is None
    assert "source: connector RUNNING, slot keeps" in pipeline.run("status")


def test_status_shows_a_connector_that_has_failed(pipeline: Explained) -> None:
    """Its sinks have a lag of 0: only the source's part tells. (The last test: the connector stays as it is.)"""
    pipeline.execute("INSERT INTO tweets VALUES (9003, 1, now(), repeat('x', %s), NULL)", 2 * MAX_MESSAGE)
    failed = pipeline.wait(lambda report: "FAILED" in report["source"]["tasks"])
    assert "RecordTooLarge" in failed["source"]["error"]
    # `run` starts it again and again, more and more seldom, and it fails each time.
    assert eventually(lambda: "FAILED" in pipeline.run("status").partition("source: ")[2])
    assert eventually(lambda: "RecordTooLarge" in pipeline.run("status"))
