"""The `sluice` command, and `sluice up` as a user runs it: real processes, ports and Chroma."""
