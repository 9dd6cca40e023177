"""What Kafka Connect needs beside Debezium: the Avro converter, see ``RowAvroConverter.java``."""
