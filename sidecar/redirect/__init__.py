"""Sets the packet-filter rules that redirect a pod's connections to its sidecar, and proves that
they work."""
