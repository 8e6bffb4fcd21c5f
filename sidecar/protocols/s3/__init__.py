"""The Amazon S3 protocol: its routes, the keys that requests concern, and how lists are
filtered."""
