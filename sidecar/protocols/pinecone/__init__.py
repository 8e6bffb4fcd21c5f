"""The Pinecone protocol: its routes, the namespaces they concern, and how they are filtered."""
