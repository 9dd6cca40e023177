"""Views tested like code: rows in, documents out, by the engine's own code and without any server."""
