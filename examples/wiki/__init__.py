"""A wiki whose pages are their edits, folded. See README.md."""
