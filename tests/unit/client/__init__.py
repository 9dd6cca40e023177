"""Tests of `client/`."""
