"""Workload identity: a pod proves by its ServiceAccount token which agent it is, and gets keys that
live an hour."""
