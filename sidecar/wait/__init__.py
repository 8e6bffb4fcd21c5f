"""Waits for the sidecar on this host, for hooks of its container."""
