"""Programs for Kubernetes: the admission webhook, which adds the sidecar to pods, and `sluice
doctor --cluster`, which looks for ways around it."""
