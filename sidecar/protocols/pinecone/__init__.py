"""The Pinecone protocol: its routes, the namespaces that requests concern, and how responses are
filtered."""
