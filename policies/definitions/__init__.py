"""Policies as people write them: the YAML files, their folders, and the model they become."""
