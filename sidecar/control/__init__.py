"""The sidecar's client of the control API, its clock, and the shipping of audit records."""
