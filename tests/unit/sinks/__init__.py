"""Tests of `sinks/`."""
