"""Makes the sidecar's reports about itself: metrics, and the status report to the control API."""
