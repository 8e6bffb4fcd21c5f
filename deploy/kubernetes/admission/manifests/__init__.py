"""Manifests: the pods in the files that `sluice inject` reads, and what it writes instead."""
