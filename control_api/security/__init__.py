"""Parses the settings that decide about security: egress rules, export targets, token issuers,
sign-in to the console."""
