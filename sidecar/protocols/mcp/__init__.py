"""The Model Context Protocol: its methods, what they concern, and how messages are filtered."""
