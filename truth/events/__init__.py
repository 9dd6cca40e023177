"""What views made of events must hold, worked out once more; somebody hands the events in."""
