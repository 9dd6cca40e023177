"""The list of captured tables: what was captured of each, what is not as it was any more, where their topics begin."""
