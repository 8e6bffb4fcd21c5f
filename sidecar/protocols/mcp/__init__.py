"""The Model Context Protocol: its methods, the sources that they concern, and how messages are
filtered."""
