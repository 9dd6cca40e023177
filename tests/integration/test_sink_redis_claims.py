"""Who may use which keys of a Redis: claimed in the server, by every sink, for all of its generations."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import SinkRefused
from cdc.keyspaces import CLAIMS
from sinks.contract import WRITTEN, Item, Sink
from sinks.redis.claims import Claims
from tests.support.keyspaces import meet
from tests.support.servers import servers
from tests.support.sinks import Subject, doc, subject_on

pytestmark = pytest.mark.stack

STEMS = st.lists(st.sampled_from(["a", "b", ":", "@", "@2", "@10", "1", "-", "%", "."]), min_size=1, max_size=6).map(
    "".join
)


@pytest.fixture
def subject() -> Iterator[Subject]:
    with subject_on(servers(), "redis") as made:
        yield made


@pytest.fixture
def client(subject: Subject) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(subject.url) as made:
        yield made


def sink(subject: Subject, owner: str, view: str, prefix: str = "", generation: int = 1, token: int = 0) -> Sink:
    """A sink of somebody's: a view below a prefix of the test's own."""
    return subject.open(
        owner=owner,
        key_prefix=f"{subject.name}:{prefix}",
        targets={view: {"generation": generation}},
        token=token,
    )


def claims(client: redis.Redis, subject: Subject) -> dict[str, str]:
    start = f"{subject.name}:".encode()
    found = client.hgetall(CLAIMS)
    return {stem[len(start) :].decode(): owner.decode() for stem, owner in found.items() if stem.startswith(start)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("shop", ""), ("order", "shop:")),
        (("order", "shop:"), ("shop", "")),
        (("shop", ""), ("shop", "")),
        (("shop", ""), ("order", "shop@2:")),
    ],
)
def test_keys_that_may_be_anothers_are_refused_by_name_and_nothing_is_changed(
    subject: Subject, client: redis.Redis, first: tuple[str, str], second: tuple[str, str]
) -> None:
    sink(subject, "one/cache", *first).setup()
    before = claims(client, subject)
    with pytest.raises(SinkRefused, match="one/cache") as refused:
        sink(subject, "two/cache", *second).setup()
    for said in ("key_prefix", "drop FILE --sink", f"HDEL {CLAIMS} {subject.name}:{first[1]}{first[0]}"):
        assert said in str(refused.value)
    assert claims(client, subject) == before == {f"{first[1]}{first[0]}": "one/cache"}
    assert client.exists(f"{subject.name}:{second[1]}{second[0]}@live") == (first == second)


def test_of_several_views_all_are_claimed_or_none(subject: Subject, client: redis.Redis) -> None:
    sink(subject, "one/cache", "order").setup()
    several = subject.open(owner="two/cache", targets={"customer": {}, "order": {}, "product": {}})
    with pytest.raises(SinkRefused, match="order"):
        several.setup()
    assert claims(client, subject) == {"order": "one/cache"}


def test_a_sink_comes_back_and_its_generations_share_a_claim_until_the_last_is_dropped(
    subject: Subject, client: redis.Redis
) -> None:
    sink(subject, "one/cache", "shop").setup()
    sink(subject, "one/cache", "shop").setup()
    second = sink(subject, "one/cache", "shop", generation=2, token=5)
    second.setup()
    sink(subject, "one/cache", "shop").drop("shop")
    assert claims(client, subject) == {"shop": "one/cache"}
    second.drop("shop")
    assert claims(client, subject) == {}
    sink(subject, "two/cache", "order", "shop:").setup()


def test_an_upgraded_sink_claims_at_its_next_setup_and_what_overlaps_it_is_not_touched(
    subject: Subject, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Two that were at work before there were claims: the one that starts first keeps its keys."""
    outer, inner = sink(subject, "one/cache", "shop"), sink(subject, "two/cache", "order", "shop:")
    assert outer.write("shop", [Item("1", 1, doc(1))]) == inner.write("order", [Item("1", 1, doc(1))]) == [WRITTEN]
    inner.setup()
    with pytest.raises(SinkRefused, match="two/cache"):
        outer.setup()
    for touched in (lambda: list(outer.scan("shop")), lambda: list(outer.sample("shop", 1, 1))):
        with pytest.raises(SinkRefused, match="two/cache"):
            touched()
    with pytest.raises(SinkRefused, match="two/cache"):
        outer.promote("shop", 1)
    with caplog.at_level(logging.WARNING):
        outer.drop("shop")
    assert "what is there is left" in caplog.text
    assert set(inner.get("order", ["1"])) == {"1"}


def test_who_may_not_see_the_claims_goes_on_and_says_so(
    subject: Subject, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    rules = ["reset", "on", ">pw", "+@all", f"~{subject.name}:*", f"~hw:v:{{{subject.name}:*"]
    client.execute_command("ACL", "SETUSER", subject.name, *rules)
    try:
        alone = subject.open(owner="one/cache", targets={"shop": {}}, user=subject.name, password="pw")
        with caplog.at_level(logging.WARNING):
            alone.setup()
        assert "has no right to the key headwater:prefixes" in caplog.text
        assert alone.write("shop", [Item("1", 1, doc(1))]) == [WRITTEN]
        alone.drop("shop")
    finally:
        client.execute_command("ACL", "DELUSER", subject.name)


def test_who_may_not_ask_for_info_goes_on_and_says_so(
    subject: Subject, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """`check` was well, and `run` refused: the usual rights of an application leave INFO out."""
    client.execute_command("ACL", "SETUSER", subject.name, "reset", "on", ">pw", "~*", "+@all", "-@dangerous")
    try:
        alone = subject.open(owner="one/cache", targets={"shop": {}}, user=subject.name, password="pw")
        with caplog.at_level(logging.WARNING):
            alone.setup()
            alone.setup()
        assert caplog.text.count("whether it may evict keys can't be seen") == 1 and "+info" in caplog.text
        assert alone.write("shop", [Item("1", 1, doc(1))]) == [WRITTEN]
        assert [held.key for held in alone.scan("shop")] == ["1"]
        alone.drop("shop")
    finally:
        client.execute_command("ACL", "DELUSER", subject.name)


@pytest.mark.parametrize("taken", [("-@write",), ("-get",), ("-del",)])
def test_whose_right_to_write_is_taken_away_loses_no_change(
    subject: Subject, client: redis.Redis, taken: tuple[str, ...]
) -> None:
    """The script may still be called, and the server refuses what is in it: each change was called a bad document."""
    rules = ["reset", "on", ">pw", "+@all", f"~{subject.name}:*", f"~hw:v:{{{subject.name}:*"]
    client.execute_command("ACL", "SETUSER", subject.name, *rules)
    try:
        frozen = subject.open(targets={"shop": {}}, user=subject.name, password="pw")
        frozen.setup()
        client.execute_command("ACL", "SETUSER", subject.name, *taken)
        with pytest.raises(SinkRefused, match="its rights"):
            frozen.write("shop", [Item("1", 1, doc(1)), Item("2", 1, None)])
        client.execute_command("ACL", "SETUSER", subject.name, "+@all")
        assert frozen.write("shop", [Item("1", 1, doc(1)), Item("2", 1, None)]) == [WRITTEN] * 2
    finally:
        client.execute_command("ACL", "DELUSER", subject.name)


def test_the_server_and_the_file_judge_alike(client: redis.Redis, subject: Subject) -> None:
    """The check of the file is Python, that of the server Lua."""

    @settings(max_examples=300, deadline=None)
    @given(first=STEMS, second=STEMS)
    def alike(first: str, second: str) -> None:
        one, two = f"{subject.name}{first}", f"{subject.name}{second}"
        client.delete(CLAIMS + subject.name)
        owners = Claims("one", "sink one"), Claims("two", "sink two")
        owners[0].claim(client, one)
        try:
            assert (owners[1].in_the_way(client, two) is not None) == meet(one, two)
        finally:
            owners[0].release(client, one)

    alike()
