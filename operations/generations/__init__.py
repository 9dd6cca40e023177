"""Which generation readers see; new ones, old ones."""
