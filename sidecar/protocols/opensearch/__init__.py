"""OpenSearch and Elasticsearch over HTTP (`protocols/RULES.md`, OpenSearch)."""
