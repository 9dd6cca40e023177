"""Sinks held against the second opinion; differences mended."""
