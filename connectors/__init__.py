"""The way in: Postgres preflight and objects, Kafka Connect, Debezium configuration, compacted topics, signals."""
