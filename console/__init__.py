"""The operator's door: the ``headwater`` command, one file a verb."""
