"""One module a server: its configuration, its command line, its health."""
