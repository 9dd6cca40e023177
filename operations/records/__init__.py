"""The newest record of single rows, read from the log, for who asks about these rows alone."""
