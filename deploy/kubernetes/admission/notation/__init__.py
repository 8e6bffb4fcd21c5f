"""How Kubernetes writes: YAML and quantities. Knows no kind of object."""
