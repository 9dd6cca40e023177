"""A search over people's profiles, each put together from five tables. See README.md."""
