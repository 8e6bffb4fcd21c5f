"""The Chroma protocol: its routes, the collections that requests concern, and how responses are
filtered."""
