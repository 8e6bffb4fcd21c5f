"""The sidecar's access to the operating system and the runtime: memory, key files, log lines. Knows
nothing of Sluice's own concepts."""
