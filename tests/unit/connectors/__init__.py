"""Tests of `connectors/`."""
