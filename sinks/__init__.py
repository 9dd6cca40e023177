"""The way out: one module a system behind one contract, and dead letters. Knows neither Spark nor Kafka."""
