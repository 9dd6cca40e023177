"""Where the log can't be continued: each gap at the source noticed, and refused by name."""
