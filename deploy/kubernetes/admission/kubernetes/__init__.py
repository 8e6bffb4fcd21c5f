"""A small client of the Kubernetes API: the few calls that the webhook makes."""
