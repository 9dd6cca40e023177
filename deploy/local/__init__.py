"""The local stack: every server as a plain process on loopback, without Docker."""
