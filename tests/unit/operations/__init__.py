"""Tests of `operations/`."""
