"""What the sidecar says of itself: metric values collected from its parts, and the status report
that it sends to the control API. Knows every part of a sidecar; no part knows it.
"""
