"""Tests of `spark/`."""
