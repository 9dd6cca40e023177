"""What is said of a table that is not what was captured, without a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc.log.client import Topic
from cdc.same_key import KeyPart
from connectors.actual import find_gaps
from connectors.captured.captured import Captured, Gap
from connectors.captured.changed import _kept, difference, merged, refusal, refusals
from connectors.connector import plan_renewal
from connectors.database.sessions import Session, ours
from connectors.database.sightings import Sighting
from connectors.names import Names

KNOWN = Sighting(7, ("id",), "default", True, 10, "500", 90, "s.t", keyless={"70": "500", "71": "501"})
INT = KeyPart("id", 1, "int4", "integer")
WITH_PARTS = replace(KNOWN, parts=(INT,))
AWAY = "had a replica identity that lacks its key for a while"


@pytest.mark.parametrize(
    ("now", "what", "key"),
    [
        (replace(KNOWN, identity="full"), None, False),
        (replace(KNOWN, owner=11, named="600"), None, False),
        (replace(KNOWN, named="600"), "was renamed, and renamed back", False),
        (replace(KNOWN, oid=8, member=91, named="600"), "was dropped and made again", False),
        (replace(KNOWN, oid=8, member=None), "was dropped and made again, is not in publication p", False),
        (replace(KNOWN, member=None), "is not in publication p", False),
        (replace(KNOWN, member=91), "was out of publication p for a while, or under a filter there", False),
        (replace(KNOWN, lacks="its updates"), "does not get its updates sent by publication p", False),
        (replace(KNOWN, key=("id", "v")), "has the key (id, v), and had (id)", True),
        (replace(KNOWN, key=()), "has the key (), and had (id)", True),
        (replace(KNOWN, keyless={"70": "500", "72": "503"}), None, False),
        (replace(KNOWN, keyless={"70": "502"}), AWAY, False),
        (replace(KNOWN, keyless={"70": "502/clustered"}), None, False),
        (replace(KNOWN, oid=8, keyless={"70": "502"}), "was dropped and made again", False),
        (replace(KNOWN, identity="index", carried=False), "has a replica identity that lacks its key", False),
    ],
)
def test_what_happened_is_told(now: Sighting, what: str | None, key: bool) -> None:
    found = difference(KNOWN, now, now if now.oid == KNOWN.oid else None, "p")
    assert (found.what if found else None, found.key if found else False) == (what, key)


@pytest.mark.parametrize(
    ("part", "oid", "what"),
    [
        (KeyPart("id", 1, "uuid", "uuid"), 7, "has the key (id uuid), and had (id integer)"),
        (
            KeyPart("id", 4, "int4", "integer"),
            7,
            "has the key (id integer) of another column, which was given that name",
        ),
        (KeyPart("id", 1, "int8", "bigint"), 7, None),
        (KeyPart("id", 4, "int4", "integer"), 8, "was dropped and made again"),
    ],
)
def test_a_key_of_the_same_name_and_another_type_or_column_is_another_key(part: KeyPart, oid: int, what: str) -> None:
    """Documents under the ids of before stayed for ever, and each rebuild differed from Postgres."""
    now = replace(WITH_PARTS, oid=oid, parts=(part,))
    found = difference(WITH_PARTS, now, None, "p")
    assert (found.what if found else None, found.key if found else False) == (what, oid == 7 and what is not None)


def test_a_label_of_a_key_that_was_given_another_name_is_told() -> None:
    known = replace(KNOWN, parts=(KeyPart("id", 1, "enum", "mood", ("sad", "ok")),))
    now = replace(known, parts=(KeyPart("id", 1, "enum", "mood", ("low", "ok")),))
    found = difference(known, now, None, "p")
    assert found is not None and found.key
    assert found.what == "has the key (id mood), and labels of it were given other names"
    more = replace(known, parts=(KeyPart("id", 1, "enum", "mood", ("sad", "ok", "happy")),))
    assert difference(known, more, None, "p") is None and _kept(known, more) == more
    unlabelled = replace(known, parts=(KeyPart("id", 1, "enum", "mood"),))
    assert Sighting.from_dict(unlabelled.to_dict()).to_dict() == unlabelled.to_dict()
    assert "labels" not in unlabelled.to_dict()["parts"][0]  # a gap is noted only of what is still remembered so
    assert difference(unlabelled, now, None, "p") is None and _kept(unlabelled, now) == now


def test_what_an_older_version_remembers_of_a_key_is_no_other_key_and_is_kept_as_it_was_written() -> None:
    raw = {key: value for key, value in WITH_PARTS.to_dict().items() if key != "parts"}
    old = Sighting.from_dict(raw)
    assert old.to_dict() == raw  # a gap is noted only of what is still remembered so
    now = replace(WITH_PARTS, parts=(KeyPart("id", 1, "uuid", "uuid"),))
    assert difference(old, now, None, "p") is None
    assert _kept(old, now).parts == now.parts  # from here on
    wider = replace(WITH_PARTS, parts=(KeyPart("id", 1, "int8", "bigint"),))
    assert _kept(WITH_PARTS, wider) == wider
    assert Sighting.from_dict(WITH_PARTS.to_dict()).parts == (INT,)
    assert WITH_PARTS.with_key(now) == WITH_PARTS


def test_new_indexes_are_remembered_and_known_ones_stay_as_they_were() -> None:
    now = replace(KNOWN, named="600", keyless={"70": "502", "71": "503/clustered", "72": "504"})
    assert KNOWN.with_indexes(now) == replace(KNOWN, keyless={"70": "500", "71": "503/clustered", "72": "504"})


def test_a_table_that_lost_its_name() -> None:
    elsewhere = replace(KNOWN, name="s.old")
    gone = difference(KNOWN, None, elsewhere, "p")
    assert gone is not None and (gone.what, gone.gone) == ("was renamed to s.old", True)
    swapped = difference(KNOWN, replace(KNOWN, oid=8), elsewhere, "p")
    assert swapped is not None and swapped.what == "was renamed to s.old, and another table has its name"
    dropped = difference(KNOWN, None, None, "p")
    assert dropped is not None and dropped.what == "was dropped"


def test_only_sessions_of_our_own_connector_are_ended() -> None:
    names, known = Names("headwater", "shop"), 'UPDATE "headwater"."heartbeat_shop" SET beat = beat + 1'
    sessions = [Session(1, "", own_slot=True), Session(2, known), Session(3, "SHOW wal_level"), Session(4, "COMMIT")]
    assert ours(sessions, names, others=False) == [1, 2, 3, 4]
    assert ours(sessions, names, others=True) == [1, 2], "the others may be another pipeline's"
    assert ours([Session(5, known.replace("_shop", "_shop2"))], names, others=True) == []


def test_a_gap_grows_and_what_it_needs_is_not_forgotten() -> None:
    keyed = difference(KNOWN, replace(KNOWN, key=("v",)), KNOWN, "p")
    gap = merged(Gap(("was renamed, and renamed back",), mending=True), keyed)
    assert (len(gap.reasons), gap.key, gap.mending) == (2, True, False), "what happens while it is mended voids that"
    assert merged(gap, keyed) == gap, "and is said once"
    assert Gap.from_dict(gap.to_dict()) == gap
    assert Sighting.from_dict(KNOWN.to_dict()) == replace(KNOWN, name="")
    assert "`headwater rebuild FILE SINK --auto`" in refusal("s.t", gap).fix
    entry = Captured("s.t", "done", None, datetime.now(UTC), identity=KNOWN, gap=gap)
    assert set(refusals({"s.t": entry, "s.u": replace(entry, table="s.u", gap=None)}, {})) == {"s.t"}


def test_a_connector_is_restarted_for_tables_and_topics_are_made_anew_without_one() -> None:
    topic = Topic("p.s.t", 2, 1, {"cleanup.policy": "compact"})
    [both] = plan_renewal("c", ["s.t"], [topic], [], there=True)
    assert both.detail == "restart, to read the definition of s.t anew; topic p.s.t is deleted and made anew"
    [kept] = plan_renewal("c", ["s.t"], [topic], ["lake"], there=True)
    assert kept.detail.endswith("(history of sink lake begins anew for it, without what it has not read by then)")
    assert len(plan_renewal("c", ["s.t"], [], [], there=True)) == 1
    assert plan_renewal("c", ["s.t"], [], [], there=False) == [] == plan_renewal("c", [], [], [], there=True)
    assert len(plan_renewal("c", ["s.t"], [topic], [], there=False)) == 1


def test_a_gap_that_nobody_mends_any_more_is_found_again() -> None:
    """A version that was killed between two notes has left it so: read, and being mended."""
    gap = Gap(("was dropped",), mending=True)
    entry = Captured("s.t", "requested", "one", datetime(2026, 1, 1, tzinfo=UTC), gap=gap)
    for state, found in (("wanted", {}), ("requested", {}), ("done", {"s.t": gap})):
        assert find_gaps({"s.t": replace(entry, state=state)}, {}) == found
    assert find_gaps({"s.t": replace(entry, gap=replace(gap, mending=False))}, {}) == {"s.t": gap}
