"""`python -m sidecar.doctor --config FILE`: finds ways in which an agent could bypass this sidecar.
Reads files, opens connections and resolves names. Changes nothing and prints no secret."""
