"""What history's tables and views are called; the pipeline file's checks must know."""

# Behind a table's name.
HISTORY, VERSIONS = "_history", "_versions"
# What history could not see, a row a gap; in the sink's namespace.
GAPS = "_hw_history_gaps"
