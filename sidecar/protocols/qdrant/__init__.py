"""The Qdrant protocol: which requests retrieve, from which collections, and how they're
filtered."""
