"""A row that was deleted at the source is erased where it still is; docs/decisions/erasure.md."""
