"""The engine: Spark session, changelog source, live queries, the warehouse. Knows neither HTTP nor the command line."""
