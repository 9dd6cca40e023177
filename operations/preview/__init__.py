"""Documents as a pipeline file's views make them, before anything is captured or written."""
