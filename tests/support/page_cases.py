"""What pages show, as the operations below them answer."""

from __future__ import annotations

from tests.support.watched import World

NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>'


BUILDS = {
    name: [
        {
            "generation": 1,
            "stage": "living",
            "why": "the first",
            "created_at": None,
            "promoted_at": 1.0,
            "differs_from_file": [],
        },
        {
            "generation": 2,
            "stage": "ready",
            "why": NASTY,
            "created_at": 2.0,
            "promoted_at": None,
            "differs_from_file": [],
        },
    ]
    for name in ("search", "cache", "warehouse")
}
COUNTS = {"inserted": 1000, "updated": 20, "deleted": 3}
TABLES = [
    {
        "table": "public.flights",
        "state": "initial",
        "topics": 1,
        "records": 400,
        "records_error": None,
        "rows": 1000,
        "again": False,
        "gap": NASTY,
        **COUNTS,
    },
    {
        "table": "public.planes",
        "state": "done",
        "topics": 1,
        "records": 10,
        "records_error": None,
        "rows": 10,
        "again": False,
        "gap": None,
        **COUNTS,
    },
]
BATCH = {
    "flow": NASTY,
    "batch": 7,
    "at": 1795239427.57,
    "ms": 200,
    "parts": {"offsets": 10, "plan": 20, "apply": 150, "commit": 15, "other": 5},
    "records": 12,
    "written": 11,
    "deleted": 1,
    "stale": 0,
    "rejected": 0,
    "from_lsn": "0/2CA35B48",
    "to_lsn": "0/2CA35C00",
    "slowest": "apply",
}


def ready(made: World) -> None:
    """A generation beside the living one, in the state folder."""
    from operations.state.folder import register_of

    register = register_of(made.served.pipeline, "search")
    register.move(register.create(NASTY).number, "ready")
    register.generation(2).note_views(["flight"])
