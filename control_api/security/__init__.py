"""Handles files that hold secrets, and parses the settings that matter for security: egress rules,
export targets, token issuers, sign-in to the console."""
