"""Puts the sidecar into pods: the admission webhook, and `sluice inject` for doing it by hand."""
