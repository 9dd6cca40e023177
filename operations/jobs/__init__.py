"""What somebody has asked a server to do: each a job with an id, a log and a result."""
