"""What is on disk of a generation and its flows: identity, lease, checkpoints, how they fare."""
