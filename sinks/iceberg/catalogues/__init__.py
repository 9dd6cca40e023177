"""The kinds of catalogues: SQL databases and Iceberg's REST protocol."""
