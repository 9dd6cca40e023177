"""What is kept of the fields that an index has of columns that are gone."""

from __future__ import annotations

from pathlib import Path

from operations.schema.mapped import note_mapped, read_mapped
from spark.disk.state import Generation


def test_two_tables_of_one_view_do_not_forget_each_others_fields(tmp_path: Path) -> None:
    """Each was told from what was known before either: the second note replaced the first one."""
    generation = Generation(tmp_path, "shop", "search")
    of_root = {"n": {"type": "integer"}, "owner": {"properties": {"id": {"type": "integer"}}}}
    of_owner = {"owner": {"properties": {"age": {"type": "integer"}}}}
    note_mapped(generation, "card", of_root)
    note_mapped(generation, "card", of_owner)
    note_mapped(generation, "card", {})
    ids = {"id": {"type": "integer"}, "age": {"type": "integer"}}
    assert read_mapped(generation) == {"card": {"n": {"type": "integer"}, "owner": {"properties": ids}}}
