"""The ``headwater`` command: one file a verb, and its bars."""
