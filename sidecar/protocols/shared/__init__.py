"""The common parts of several protocols."""
