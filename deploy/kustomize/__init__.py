"""The manifests for kustomize, rendered from the chart."""
