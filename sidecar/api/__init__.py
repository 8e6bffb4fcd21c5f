"""Serves the sidecar's own ports: `/v1/context/*`, the list of sources, health and metrics."""
