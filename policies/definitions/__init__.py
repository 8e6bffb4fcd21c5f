"""Policies as people write them: YAML files, folders, and the model that they become."""
