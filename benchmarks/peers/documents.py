"""The documents that both sides keep, as pgsync's schema and as the SQL that says what they must be.

``flight_card`` is a flight with its airline, plane and two airports (many-to-one, airports twice); ``plane_card`` is a
plane with its flights (one-to-many). A reference has another name than its column: pgsync takes a label that is a
column of the row above, too, for the join key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

Node = dict[str, Any]
# Label, table, column of the row above, column of this table.
FLIGHT_REFS = (
    ("airline", "airlines", "carrier", "carrier"),
    ("plane", "planes", "tailnum", "tailnum"),
    ("origin_airport", "airports", "origin", "faa"),
    ("dest_airport", "airports", "dest", "faa"),
)


@dataclass(frozen=True)
class Document:
    """One kind of document.

    Attributes:
        name: of the index, too.
        nodes: pgsync's description of it.
        count: SQL for how many there are.
        truth: SQL for key (text) and content (jsonb) of each.
        arrays: fields that are arrays: pgsync leaves their order to Postgres.
    """

    name: str
    nodes: Node
    count: str
    truth: str
    arrays: tuple[str, ...] = ()

    def schema(self, database: str) -> list[Node]:
        """What goes into pgsync's ``schema.json``."""
        return [{"database": database, "index": self.name, "nodes": self.nodes}]

    def rows(self, database: psycopg.Connection) -> Iterator[tuple[str, Node]]:
        """Key and content of every document as plain SQL makes it."""
        with database.transaction(), database.cursor("truth") as cursor:
            cursor.itersize = 2000
            yield from cursor.execute(self.truth.encode())


def child(label: str, table: str, above: str, here: str, kind: str) -> Node:
    """A nested node. Every key is named: of the five ways only two are declared as foreign keys in the database."""
    relationship = {"variant": "object", "type": kind, "foreign_key": {"parent": [above], "child": [here]}}
    return {"table": table, "label": label, "relationship": relationship}


FLIGHT_CARD = Document(
    name="flight_card",
    nodes={"table": "flights", "children": [child(*ref, "one_to_one") for ref in FLIGHT_REFS]},
    count="SELECT count(*) FROM flights",
    truth="""
        SELECT f.flight_id::text,
               to_jsonb(f) || jsonb_build_object('airline', to_jsonb(a), 'plane', to_jsonb(p),
                                                 'origin_airport', to_jsonb(o), 'dest_airport', to_jsonb(d))
        FROM flights f LEFT JOIN airlines a USING (carrier) LEFT JOIN planes p USING (tailnum)
             LEFT JOIN airports o ON o.faa = f.origin LEFT JOIN airports d ON d.faa = f.dest""",
)
PLANE_CARD = Document(
    name="plane_card",
    nodes={"table": "planes", "children": [child("flights", "flights", "tailnum", "tailnum", "one_to_many")]},
    count="SELECT count(*) FROM planes",
    truth="""
        SELECT p.tailnum,
               to_jsonb(p) || jsonb_build_object(
                   'flights', (SELECT jsonb_agg(to_jsonb(f)) FROM flights f WHERE f.tailnum = p.tailnum))
        FROM planes p""",
    arrays=("flights",),
)
DOCUMENTS = {document.name: document for document in (FLIGHT_CARD, PLANE_CARD)}


def same(found: Node, wanted: Node, arrays: tuple[str, ...] = ()) -> bool:
    """Is the document right? Fields that begin with ``_`` are the peer's own; arrays are compared in any order."""

    def settled(document: Node) -> Node:
        kept = {field: value for field, value in document.items() if not field.startswith("_")}
        for field in arrays:
            kept[field] = sorted(kept.get(field) or [], key=repr)
        return kept

    return settled(found) == settled(wanted)
