"""A pipeline file's views, as the tables in the database make them."""
