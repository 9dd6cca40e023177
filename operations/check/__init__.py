"""What `headwater check` asks of the views and the ways out; of the way in, `connectors/preflight/`."""
