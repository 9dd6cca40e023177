"""A warehouse that keeps history: every event of its tables, appended once."""
