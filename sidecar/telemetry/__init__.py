"""The sidecar's reports about itself: metrics collected from its parts, and the status report to
the control API. Knows every part of a sidecar; no part knows it."""
