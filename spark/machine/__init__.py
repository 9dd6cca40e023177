"""Spark itself: sessions, clusters, what executors get, and what their machines say."""
