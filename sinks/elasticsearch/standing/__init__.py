"""Standing queries in Elasticsearch: kept, and documents judged by them."""
