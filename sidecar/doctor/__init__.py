"""`python -m sidecar.doctor --config FILE`: finds ways around this sidecar. It reads files, opens
connections and resolves names. It changes nothing and prints no secret."""
