"""Keeping sinks in sync, and filling new generations."""
