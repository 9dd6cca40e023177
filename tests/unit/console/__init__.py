"""Tests of `console/`."""
