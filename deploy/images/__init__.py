"""Container images of every server and of Headwater itself, out of the same pinned files as the local stack."""
