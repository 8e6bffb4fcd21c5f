"""Waits until the sidecar on this host is ready, for hooks of its container."""
