"""From records of the log to entries: in Python, or in the virtual machine; and what Spark SQL makes of them."""
