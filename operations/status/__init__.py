"""How a pipeline is, as data."""
