"""The Amazon S3 protocol: its routes, the keys they concern, and how lists are filtered."""
