"""The row store in memory: the double of the one in Redis."""
