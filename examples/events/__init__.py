"""Events in time: windows, what followed and what did not."""
