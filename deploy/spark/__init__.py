"""What Spark's virtual machine gets from us: cheap files for checkpoints, see ``LocalCheckpoints.java``."""
