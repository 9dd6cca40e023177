"""A view's changes and matches as streams in Redis, and who reads them."""
