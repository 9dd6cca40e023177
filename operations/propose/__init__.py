"""A pipeline file for a database: which tables, which documents, and why not the others."""
