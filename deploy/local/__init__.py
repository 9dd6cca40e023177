"""The local stack: real servers as plain processes, fetched, started, watched, stopped. For the console only."""
