"""A sink's next generation: chosen, filled from offset 0 beside the living one, held against Postgres, promoted."""
