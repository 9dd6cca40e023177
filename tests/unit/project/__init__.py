"""Tests of what concerns the whole project: its pages, its suite, its benchmarks and examples."""
