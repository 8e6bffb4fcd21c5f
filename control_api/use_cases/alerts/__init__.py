"""Use cases on alert rules and fired alerts, one operation a file."""
