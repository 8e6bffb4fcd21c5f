"""What the sidecar needs of the operating system: memory, random numbers, key files, log lines.
Knows nothing of Sluice.
"""
