"""What a record of the log is, and how its bytes are read."""
