"""What an operator sees: pages made by the server of what the API answers."""
