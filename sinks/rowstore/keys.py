"""Key names of the row store. Pure.

==============  ==========================================  ======================================================
row             ``<ns>r<table>:<primary key>``              see cdc/join/rows.py
index           ``<ns>i<index>:<foreign key>``              set of primary keys
contributions   ``<ns>c<group>:{<parent>}``                 hash: child -> what it contributes, JSON
totals          ``<ns>t<group>:{<parent>}``                 hash: counts and limbs
distinct        ``<ns>d<group>:{<parent>}``                 hash: aggregate:value -> how many children have it
order           ``<ns>z<group>.<aggregate>:{<parent>}``     sorted set: value NUL child
version         ``<ns>v:<root's primary key>``              of the document
deferred        ``<ns>p:{<shard>}``                         hash: root -> position, to be made later
claimed         ``<ns>q:{<shard>}``                         the same, being made
offsets         ``<ns>o``                                   hash: topic/partition -> next offset
==============  ==========================================  ======================================================

``<ns>`` is eight hex digits and a colon, because it stands in front of every key: ``headwater:rowstores`` says whose it
is. The braces put the four keys of a group into one slot of a cluster.
"""

from __future__ import annotations

import hashlib
import zlib

REGISTRY = "headwater:rowstores"
_ENCODE = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def namespace(pipeline: str, sink: str, view: str, generation: int) -> str:
    """The first part of every key of one generation of one view."""
    name = f"{pipeline}/{sink}/{view}/g{generation}"
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest() + ":"


def row(table: int, key: str) -> str:
    """A row."""
    return f"r{table}:{key}"


def index(number: int, key: str) -> str:
    """The rows that name ``key``."""
    return f"i{number}:{key}"


def group(number: int, parent: str) -> str:
    """A parent's group of aggregates; the letter of its kind comes before."""
    return f"{number}:{{{parent.translate(_ENCODE)}}}"


# Deferred roots are made by as many tasks at once at the most.
SHARDS = 8


def shard(root: str) -> int:
    """Where a deferred root waits."""
    return zlib.crc32(root.encode()) % SHARDS


def deferred(number: int) -> str:
    """Roots that wait; ``p`` or ``q`` comes before."""
    return f":{{{number}}}"


def version(root: str) -> str:
    """A document's version."""
    return f"v:{root}"
