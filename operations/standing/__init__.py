"""Standing queries: searches that each new version of a view's documents is held against (docs/standing-queries.md)."""
