"""Requests and responses as the pipeline handles them: read, relayed, filtered. Knows no
decision."""
