"""The Qdrant protocol: its routes, the collections they concern, and how responses are filtered."""
