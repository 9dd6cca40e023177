"""The second opinion: what documents must be, from Postgres alone, and computed another way than the engine does."""
