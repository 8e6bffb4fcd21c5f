"""The sidecar's own port: `/v1/context/*`, the list of sources, health and metrics."""
