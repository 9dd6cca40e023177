"""Tests of `cdc/`."""
