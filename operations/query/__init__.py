"""SQL over the warehouse's tables, and over what the log has besides: read only, inside this process."""
