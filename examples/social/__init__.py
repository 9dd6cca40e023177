"""A small social network: home timelines and like counters, kept by joined views. See README.md."""
