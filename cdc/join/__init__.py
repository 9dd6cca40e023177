"""Views of several tables: their tree, how rows are stored, how documents are put together."""
