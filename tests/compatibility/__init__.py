"""What the rule of `deploy/README.md`, "Compatibility", promises between two minor versions."""
