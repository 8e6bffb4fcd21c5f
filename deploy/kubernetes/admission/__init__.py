"""Adds the sidecar to pods: the admission webhook does it as pods are created, `sluice inject` in
manifests."""
