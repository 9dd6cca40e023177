"""Whether readers can see a write, and how old what they see is."""
