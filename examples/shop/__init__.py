"""A tiny shop with every Postgres type that people use, and a random workload to go with it."""
