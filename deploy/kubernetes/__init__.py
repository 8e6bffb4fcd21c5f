"""What runs in or looks at a Kubernetes cluster: the admission webhook, and the cluster's
doctor."""
