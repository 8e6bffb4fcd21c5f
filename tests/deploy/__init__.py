"""The command, and `sluice up` as a user meets it: real processes, real ports, a real Chroma."""
