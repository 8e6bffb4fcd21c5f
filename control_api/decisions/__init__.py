"""Decides on retrievals and records the decisions, for every use case that evaluates."""
