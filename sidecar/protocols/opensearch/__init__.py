"""OpenSearch and Elasticsearch over HTTP (data-sources.md 5.3). `dialect.py` holds the table; the
files beside it say what a request concerns and what of its answer may be seen."""
