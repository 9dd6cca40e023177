"""How Headwater and the servers around it are put on machines."""
