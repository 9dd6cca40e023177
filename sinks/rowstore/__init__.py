"""The row store: a generation's own copy of the rows that a view joins, in Redis protocol. Never a cache."""
