"""The Redis sink's pure parts: key names, errors that pass, configuration."""

from __future__ import annotations

import fnmatch
import re
import textwrap
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from headwater_client.cache import FOLLOW
from hypothesis import given
from hypothesis import strategies as st
from redis.cluster import key_slot

from cdc.errors import ConfigError, SinkRefused, SinkUnavailable
from sinks.contract import Answer, Item
from sinks.redis import names
from sinks.redis.client import ERRORS, is_no_script, is_passing, lacks_rights
from sinks.redis.pointer import Pointer
from sinks.redis.script import Change, Terms, command
from sinks.redis.server import Server
from sinks.redis.settings import read_settings
from sinks.redis.sink import RedisSink

# What a command in a script is refused with by 6.2 and 7.0, wrapped or not, and by later ones.
FROZEN = (
    "@user_script: 1: The user executing the script can't run this command or subcommand",
    "Error running script (call to f_1): @user_script:1: @user_script: 1: The user executing the script can't access "
    "at least one of the keys mentioned in the command arguments",
    "ACL failure in script: User headwater has no permissions to run the 'set' command",
)

IDS = st.text(st.characters(codec="utf-8")) | st.text("{}%7BbDd25|:", min_size=1)


@given(identity=IDS)
def test_an_id_survives_its_key(identity: str) -> None:
    assert names.id_of(names.encoded(identity)) == identity


@given(first=IDS, second=IDS)
def test_two_ids_never_share_a_key(first: str, second: str) -> None:
    if first != second:
        assert names.encoded(first) != names.encoded(second)


@given(identity=IDS)
def test_value_and_version_share_a_slot(identity: str) -> None:
    value = b"p:flight:" + names.encoded(identity)
    assert key_slot(value) == key_slot(names.version_key(value))


def test_usual_ids_are_used_as_they_are() -> None:
    assert names.prefix_of("", "airline") + names.encoded("AA|1") == b"airline:AA|1"


@given(prefix=st.text("ab*?[]\\^-", min_size=1, max_size=6))
def test_a_pattern_matches_its_own_prefix_only(prefix: str) -> None:
    # Redis's globs and fnmatch differ in escapes, so a backslash is turned into a one-character class.
    glob = names.pattern(prefix.encode()).decode()
    translated = ""
    place = 0
    while place < len(glob):
        if glob[place] == "\\":
            place += 1
            translated += f"[{glob[place]}]"
        else:
            translated += glob[place]
        place += 1
    assert fnmatch.fnmatchcase(prefix + "rest", translated)
    assert not fnmatch.fnmatchcase("X" + prefix + "rest", translated)


def test_a_call_carries_its_items_and_in_a_cluster_no_pointer() -> None:
    terms = Terms(b"0", b"60", b"9", b"2")
    two = [Change(b"v", b"m", 7, b""), Change(b"w", b"n", 8, b"{}")]
    fixed, each = (b"0", b"60", b"9", b"2"), (b"7", b"", b"8", b"{}")
    assert command(two, terms, (b"p", b"s"), b"H")[2:] == (6, b"p", b"s", b"v", b"m", b"w", b"n", *fixed, b"H", *each)
    assert command(two[:1], terms, (b"p", b"s"), b"C")[2:] == (2, b"v", b"m", *fixed, b"C", b"7", b"")


def test_names_of_a_generation() -> None:
    first, second = names.Names("p:", "flight"), names.Names("p:", "flight", 2)
    assert (first.plain, first.hidden, first.own) == (b"p:flight:", b"p:flight@1:", b"p:flight:")
    assert (second.plain, second.hidden, second.own) == (b"p:flight:", b"p:flight@2:", b"p:flight@2:")
    assert first.pointer == second.pointer == b"p:flight@live"
    assert second.version(b"AA") == b"hw:v:{p:flight@2:AA}"


@pytest.mark.parametrize(
    ("fields", "generation", "plain"),
    [
        ((None, None, None, None), 1, True),
        ((None, None, None, None), 2, False),
        ((b"2", None, b"2", None), 1, None),
        ((b"2", None, b"2", b"2"), 2, None),
        ((b"2", None, b"2", b"2"), 3, False),
        (("2", "2", None, None), 2, True),
        ((b"2", b"2", None, None), 1, False),
    ],
)
def test_where_a_generations_values_are(fields: Any, generation: int, plain: bool | None) -> None:
    assert Pointer.of(fields).is_plain(generation) is plain


def test_the_recipe_in_the_docs_is_the_script_that_is_tested() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sinks.md").read_text(encoding="utf-8")
    assert textwrap.indent(FOLLOW, "  ") in page


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("Connection refused"),
        redis.TimeoutError("Timeout reading from socket"),
        redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'"),
        redis.ResponseError("Error running script (call to f_1): @user_script:3: -OOM command not allowed"),
        redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
        redis.exceptions.ReadOnlyError("You can't write against a read only replica."),
        redis.exceptions.ClusterDownError("CLUSTERDOWN The cluster is down"),
        redis.exceptions.MasterDownError("MASTERDOWN Link with MASTER is down"),
        redis.exceptions.RedisClusterException("Redis Cluster cannot be connected."),
        redis.exceptions.RedisClusterException("All slots are not covered after query all startup_nodes. 1 of 16384"),
        redis.exceptions.SlotNotCoveredError('Slot "7" not covered by the cluster. "require_full_coverage=True"'),
        redis.exceptions.ClusterError("TTL exhausted."),
        redis.ResponseError("Error running script (call to f_1): @user_script:3: @user_script: 3: -READONLY You can't"),
        OSError("network is unreachable"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_that_pass(error: Exception) -> None:
    assert is_passing(error)
    assert not lacks_rights(error)


@pytest.mark.parametrize(
    "error",
    [
        redis.AuthenticationError("invalid username-password pair or user is disabled."),
        redis.exceptions.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
        redis.ResponseError("NOAUTH Authentication required."),
        *(redis.ResponseError(text) for text in FROZEN),
    ],
    ids=lambda error: str(error)[:60],
)
def test_missing_rights_do_not_pass(error: Exception) -> None:
    assert lacks_rights(error)
    assert not is_passing(error)


def test_other_errors_neither() -> None:
    assert not is_passing(WRONG)
    assert not is_passing(redis.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"))
    assert not is_passing(redis.ResponseError("unknown command 'X', with args beginning with: 'BUSY' 'MOVED'"))
    assert is_no_script(redis.exceptions.NoScriptError("No matching script."))
    assert not is_no_script(WRONG)


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
        redis.ResponseError("CROSSSLOT Keys in request don't hash to the same slot"),
        redis.ResponseError("Script attempted to access keys that do not hash to the same slot"),
        redis.exceptions.RedisClusterException("EVALSHA - all keys must map to the same key slot"),
        redis.exceptions.CrossSlotTransactionError("All keys involved in a cluster transaction must map to the same"),
        redis.exceptions.RedisClusterException(
            "Redis Cluster cannot be connected. Please provide at least one reachable node: "
            "Cluster mode is not enabled on this node"
        ),
        redis.exceptions.RedisClusterException("RedisCluster does not currently support Unix Domain Socket"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_what_a_cluster_will_never_take_is_not_waited_for(error: Exception) -> None:
    assert not is_passing(error)
    assert isinstance(error, ERRORS)


WRONG = redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")


def written(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> list[Answer]:
    """What becomes of two items a call, as a server answers so."""
    pipe = SimpleNamespace(execute_command=lambda *_: None, execute=lambda raise_on_error: list(answers))
    client = SimpleNamespace(pipeline=lambda transaction: pipe)
    monkeypatch.setattr("sinks.redis.write.GROUP", 2)
    monkeypatch.setattr("sinks.redis.server.Server.client", lambda self: client)
    count = 2 * len(answers)
    return RedisSink(config()).write("plane", [Item(str(n), 1, b"{}") for n in range(count)])


@pytest.mark.parametrize(
    "error", [*FROZEN, "@user_script: 1: Unknown Redis command called from Lua script", "invalid expire time in set"]
)
@pytest.mark.parametrize("whole", [False, True])
def test_what_a_server_refuses_of_everybody_makes_no_letters(
    monkeypatch: pytest.MonkeyPatch, error: str, whole: bool
) -> None:
    """An administrator who took the right to write away had each change passed over, and the offsets moved on."""
    failed = redis.ResponseError(error)
    with pytest.raises(SinkRefused, match=re.escape(error[:40])):
        written(monkeypatch, [1, 1], failed if whole else [failed, failed])


def test_what_an_item_can_cause_is_its_own_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    large = redis.ResponseError("string exceeds maximum allowed size (proto-max-bulk-len)")
    answers = written(monkeypatch, [1, WRONG], [large, 0])
    assert [one.outcome.value for one in answers] == ["written", "rejected", "rejected", "stale"]
    with pytest.raises(SinkRefused, match="WRONGTYPE"):  # the pointer of all of them is somebody else's key
        written(monkeypatch, [1, 1], WRONG)


def config(**over: Any) -> dict[str, Any]:
    return {"type": "redis", "name": "cache", "url": "redis://h:6379/0", "targets": {"plane": {}}} | over


@pytest.mark.parametrize("over", [{}, {"cluster": True}])
def test_a_node_of_a_cluster_that_is_asked_alone_is_refused_and_not_called_away(over: dict[str, Any]) -> None:
    server = Server(read_settings(config(**over)), lambda why: None)
    kind, fix = (SinkUnavailable, "start it again") if over else (SinkRefused, "set `cluster: true` for this sink")
    with pytest.raises(kind) as raised, server.once("claimed"):
        raise redis.exceptions.MovedError("3999 127.0.0.1:6381")
    assert raised.value.fix == fix


@pytest.mark.parametrize(
    ("over", "named"),
    [
        ({"url": "http://h"}, "url"),
        ({"key_prefix": "{x}:"}, "braces"),
        ({"fence_seconds": 0}, "fence_seconds"),
        ({"ttl_seconds": -5}, "ttl_seconds"),
        ({"cluster": "yes"}, "cluster"),
        ({"targets": {}}, "no view"),
        ({"cluster": True, "targets": {"odd{x}": {}}}, "braces"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_setting_is_named(over: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_settings(config(**over))


def test_secrets_are_not_shown() -> None:
    settings = read_settings(config(password="hunter2", url="redis://u:hunter2@h:1/0"))
    assert "hunter2" not in repr(settings) + settings.who
    with pytest.raises(ConfigError) as caught:
        read_settings(config(password=7_777_777))
    assert "7777777" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "taken"),
    [("5.0.14", False), ("6.0.20", False), ("6", False), ("6.2.0", True), ("7.4.1", True), ("10.0", True), ("", True)],
)
def test_a_server_that_lacks_what_a_promotion_and_a_stream_need_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    """On Redis 5 a promotion moved the pointer, and then never came to its end: SCAN has no TYPE there."""
    client = SimpleNamespace(ping=lambda: True, info=lambda: {"redis_version": version, "role": "master"})
    settings, claimed = read_settings(config(targets={"v": {}})), list[str]()
    server = SimpleNamespace(once=lambda what: nullcontext(), client=lambda: client, settings=settings)
    monkeypatch.setattr("sinks.redis.sink.Server", lambda *given: server)
    monkeypatch.setattr(RedisSink, "_claim_keys", lambda self, client: claimed.append("keys"))
    monkeypatch.setattr(RedisSink, "_claim", lambda self, where: claimed.append(where.view))
    sink = RedisSink(config(targets={"v": {}}))
    if taken:
        sink.setup()
    else:
        with pytest.raises(SinkRefused, match=f"is version {version}") as refused:
            sink.setup()
        assert "use Redis 6.2 or newer" in str(refused.value)
    assert claimed == (["keys", "v"] if taken else [])


REPLICA = "is a replica and can't be written"


@pytest.mark.parametrize("role", ["slave", "replica"])
@pytest.mark.parametrize(
    ("pointer", "claimed", "error", "words"),
    [
        ((None, b"7"), None, SinkUnavailable, REPLICA),
        ((b"2", None), None, SinkUnavailable, REPLICA),
        ((None, None), None, SinkRefused, REPLICA),
        ((b"2", None), [b"v", b"other/any"], SinkRefused, "which other/any has claimed"),
    ],
    ids=["set up", "promoted", "never set up", "of another pipeline"],
)
def test_a_replica_that_knows_this_sink_is_met_in_a_fail_over_which_passes(
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    pointer: tuple[bytes | None, ...],
    claimed: list[bytes] | None,
    error: type[Exception],
    words: str,
) -> None:
    """A flow that started in one failed for good, while one that wrote through it went on."""
    answers: dict[str, Any] = {"ping": True, "info": {"redis_version": "7.2.0", "role": role}, "script_load": ""}
    answers |= {"hmget": pointer, "eval": claimed}
    client = SimpleNamespace(**{verb: lambda *_, said=said: said for verb, said in answers.items()})
    monkeypatch.setattr("sinks.redis.server.connect", lambda _settings: client)
    with pytest.raises(error, match=words):
        RedisSink(config(targets={"v": {}, "w": {}})).setup()


def test_a_sink_that_is_opened_again_says_no_second_time_that_its_server_may_evict(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    info = {"redis_version": "7.2.0", "role": "master", "maxmemory": 1 << 20, "maxmemory_policy": "allkeys-lru"}
    settings = read_settings({"type": "redis", "name": "any", "url": "redis://h", "targets": {"v": {}}})
    client = SimpleNamespace(ping=lambda: True, info=lambda: info)
    server = SimpleNamespace(once=lambda what: nullcontext(), client=lambda: client, settings=settings)
    monkeypatch.setattr("sinks.redis.sink.Server", lambda *given: server)
    monkeypatch.setattr(RedisSink, "_claim_keys", lambda self, client: None)
    monkeypatch.setattr(RedisSink, "_claim", lambda self, where: None)
    monkeypatch.setattr("sinks.redis.sink._SAID", set())

    def said(name: str) -> int:
        for view in ("v", "w", "v"):
            RedisSink({"type": "redis", "name": name, "url": "redis://h", "targets": {view: {}}}).setup()
        return caplog.text.count("may evict keys")

    assert said("cache") == 1
    assert said("other") == 2, "another sink has its own readers"
    info["maxmemory_policy"] = "volatile-ttl"
    assert said("cache") == 3, "and another policy is news"


class Lives:
    """A server of which each value is there or not, and each version lives for so many seconds more.

    Args:
        left: id -> that number, as Redis tells it: -1 of one that does not expire, -2 of none.
        there: ids of values.
        refuses: what the user may not ask.
    """

    def __init__(self, left: dict[str, float], there: set[str], refuses: Exception | None = None) -> None:
        self.left, self.there, self.refuses = left, there, refuses
        self.moved, self.asked = False, list[str]()

    def hmget(self, *_: Any) -> list[bytes | None]:
        return [b"2", None, b"2", None] if self.moved else [None] * 4

    def pipeline(self, transaction: bool) -> Any:
        answers = list[Any]()

        def execute() -> list[Any]:
            if self.refuses is not None:
                raise self.refuses
            return answers

        def pttl(key: bytes) -> None:
            self.asked.append("pttl")
            seconds = self.left[key.removeprefix(b"hw:v:{p:v:").removesuffix(b"}").decode()]
            answers.append(int(seconds * 1000) if seconds >= 0 else int(seconds))

        def exists(key: bytes) -> None:
            self.asked.append("exists")
            answers.append(int(key.removeprefix(b"p:v:").decode() in self.there))

        return SimpleNamespace(pttl=pttl, exists=exists, execute=execute)


def expired(monkeypatch: pytest.MonkeyPatch, client: Lives, *, unversioned: bool = True) -> set[str]:
    fields = {"ttl_seconds": 3600, "fence_seconds": 600, "key_prefix": "p:", "targets": {"v": {}}}
    sink = RedisSink({"type": "redis", "name": "c", "url": "redis://h", **fields})
    monkeypatch.setattr(sink._server, "client", lambda: client)
    return sink.expired("v", [*client.left], unversioned=unversioned)


def test_a_value_whose_version_is_as_young_as_a_fence_may_have_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is written with the same time to live, and the fence: what is left beyond that the value had, too."""
    left = {"evicted": 4000.0, "there": 600.0, "expired": 600.0, "now": 601.0, "old": 0.0, "never": -2, "endless": -1}
    client = Lives(left, {"there"})
    assert expired(monkeypatch, client, unversioned=False) == {"expired", "now", "old"}, "no version is none of its"
    assert client.asked[:2] == ["pttl", "exists"], "what is written in between is there when it is looked for"
    assert expired(monkeypatch, client) == {"expired", "now", "old", "never"}


def test_where_nobody_may_ask_for_it_nothing_may_have_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = redis.exceptions.NoPermissionError("User x has no permissions to run the 'pttl' command")
    assert expired(monkeypatch, Lives({"expired": 600.0, "never": -2}, set(), refused)) == set()
