"""Holds the keys of sidecars to their own agents and their own sidecar ids."""
