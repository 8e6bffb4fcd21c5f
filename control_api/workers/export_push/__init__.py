"""Pushes decisions to the targets of `SLUICE_EXPORT_URLS`, off the path of requests."""
