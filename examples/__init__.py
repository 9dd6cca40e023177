"""Complete pipelines on real data: flights (the demo), shop (every Postgres type) and the dual-write failure."""
