"""Renders the manifests for kustomize from the Helm chart."""
