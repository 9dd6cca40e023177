"""The system in containers: docker-compose.yml's environment, and the proof that it works."""
