"""A view's changes for who subscribes to them: cursors, filters, the walk through what Redis keeps, and the fan-out."""
