"""Sets the packet filter's rules that lead a pod's connections to its sidecar, and proves them."""
