"""Reads the sidecar's configuration: one YAML file, overridden by environment variables
`SLUICE_SIDECAR_*`. Reports all complaints together. Fills the dataclasses of `sidecar.settings`."""
