"""The warehouse: Iceberg tables and their catalogue."""
