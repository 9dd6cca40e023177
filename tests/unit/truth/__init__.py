"""Tests of `truth/`."""
