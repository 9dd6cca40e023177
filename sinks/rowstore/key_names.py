"""Key names of the row store. Pure.

==============  ==========================================  ======================================================
row             ``<ns>r<table>:<primary key>``              see cdc/join/rows.py
index           ``<ns>i<index>:<foreign key>``              set of primary keys
arranged        ``<ns>f<order>:<foreign key>``              sorted set of primary keys, the first ones lowest
                                                            (rows by their moment, and versions by their beginning)
contributions   ``<ns>c<group>:{<parent>}``                 hash: child -> what it contributes, JSON
totals          ``<ns>t<group>:{<parent>}``                 hash: counts and limbs
distinct        ``<ns>d<group>:{<parent>}``                 hash: aggregate:value -> how many children have it
order           ``<ns>z<group>.<aggregate>:{<parent>}``     sorted set of different values
version         ``<ns>v:<root's primary key>``              of the document
deferred        ``<ns>p:{<shard>}``                         hash: root -> position, to be made later
claimed         ``<ns>q:{<shard>}``                         the same, being made
claim           ``<ns>x:{<shard>}``                         whose claim it is
marks           ``<ns>o``                                   hash, see sinks/rowstore/contract.py
pending         ``<ns>u:<topic>/<partition>``               set of rows
==============  ==========================================  ======================================================

On a cluster ``{<number>}`` stands between ``<ns>`` and the rest: one of ``SLOTS`` numbers, chosen by what follows the
colon, so that a key's marks and pending rows, of which each number has its own, lie in its slot. (A tag of ours is
never empty, as a key's own text may be; an empty one is none.)

``<ns>`` is eight hex digits and a colon, because it stands in front of every key: ``headwater:rowstores`` says whose it
is.
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


def arranged(number: int, key: str) -> str:
    """The rows that name ``key``, as a view shows the first of them."""
    return f"f{number}:{key}"


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


# Parts that a cluster's keys are spread over: enough for a dozen nodes, few enough to tell each of them of every task.
SLOTS = 64


def slot(key: str) -> int:
    """The number that a key, or the root or parent in it, has on a cluster."""
    return zlib.crc32(key.partition(":")[2].encode()) % SLOTS


def version(root: str) -> str:
    """A document's version."""
    return f"v:{root}"
