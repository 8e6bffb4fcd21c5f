"""The Amazon Bedrock protocol: its routes, the sources they concern, and how they are filtered."""
