"""What Kafka Connect needs beside Debezium: our converters, and Debezium's connector without its work at rest."""
