"""Weaviate over HTTP (`protocols/RULES.md`, Weaviate)."""
