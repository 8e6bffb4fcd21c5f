"""Injection: from a pod to the JSON patch that gives it the sidecar. Pure functions, no I/O."""
