"""A pipeline kept in sync: its parts step in turn until it is told to stop, or nothing is left that could go on."""
