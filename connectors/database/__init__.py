"""What Headwater keeps in the source database: helper schema, grants, replica identity, triggers, publication.

Each module reads what is there and returns the actions that lead to what must be there. Nothing here creates the
replication slot: Debezium does, because only the session that creates a slot can export the snapshot that is
consistent with it.
"""
