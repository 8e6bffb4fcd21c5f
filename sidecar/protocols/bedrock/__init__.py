"""The Amazon Bedrock protocol: its routes, the sources that requests concern, and how responses are
filtered."""
