"""The Milvus protocol: its routes, the collections and partitions that requests concern, and how
responses are filtered."""
