"""Rows that are read into the log: asked of Debezium, waited for, cut short, and the deletes that were missed."""
