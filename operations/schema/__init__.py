"""The source's tables change while sinks run: what that means for each sink, and doing it."""
