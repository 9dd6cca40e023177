"""The way out: one module a system behind one contract. Knows neither Spark nor Kafka."""
