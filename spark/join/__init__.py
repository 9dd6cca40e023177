"""Keeping joined views: apply changes to the row store, find the documents that they touch, put those together."""
