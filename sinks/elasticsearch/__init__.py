"""Documents in Elasticsearch and OpenSearch: external versions, deletes that stay deleted, an answer for every item."""

from sinks.elasticsearch.sink import ElasticsearchSink

__all__ = ["ElasticsearchSink"]
