"""What Kafka Connect needs beside Debezium: our converters, ``RowJsonConverter`` and ``RowAvroConverter``."""
