"""The doors: the ``headwater`` command, and HTTP with the page."""
