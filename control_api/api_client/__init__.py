"""Asks a control API with an operator's key: `sluice verify --url` and `sluice policy --url` do.
Needs the standard library alone."""
