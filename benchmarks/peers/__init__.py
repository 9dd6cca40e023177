"""Other people's programs for the same task, measured in the same run: each in its own environment, on its servers."""
