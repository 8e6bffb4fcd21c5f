"""Reads the sidecar's configuration: one YAML file, overridden by `SLUICE_SIDECAR_*` variables.
Reports all complaints together. Fills the dataclasses of `sidecar.settings`.
"""
