"""Programs that run in or look at a Kubernetes cluster: the admission webhook, and the cluster's
doctor."""
