"""A warehouse's tables are kept quick to read: what is to be done, how, and when."""
