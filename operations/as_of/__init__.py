"""Every table of a warehouse as of one commit: where the cut is, its names, the SQL that reads it."""
