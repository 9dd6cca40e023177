"""What Spark's virtual machine gets from us: cheap files for checkpoints, and queries that rest (``*.java``)."""
