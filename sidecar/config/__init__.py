"""Reads the sidecar's configuration: one YAML file, `SLUICE_SIDECAR_*` over it, every complaint
together. Fills the dataclasses of `sidecar.settings`.
"""
