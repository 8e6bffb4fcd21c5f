"""The sidecar's access to the operating system and the runtime: memory, key files, pauses and
coroutines. Knows nothing of Sluice's own concepts."""
