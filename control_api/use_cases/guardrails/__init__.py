"""Use cases on guardrails, one operation a file."""
