"""The Chroma protocol: which requests retrieve, from which collections, and how they are
filtered."""
