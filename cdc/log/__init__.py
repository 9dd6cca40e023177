"""The one reader of the log: client, ends, records, topics, letters, schema registry."""
