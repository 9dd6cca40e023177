"""A pipeline file that is changed and applied while it runs."""
