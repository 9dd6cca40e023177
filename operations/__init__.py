"""What can be done with a pipeline, and reports about it. No click, no printing, no process exit."""
