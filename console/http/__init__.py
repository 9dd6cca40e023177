"""The HTTP door: what can be done with pipelines, as JSON."""
