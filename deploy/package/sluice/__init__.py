"""Sluice as installed from a wheel: its packages are in `lib`, which is not on Python's path.

`policies`, `sidecar`, `control_api` and `deploy` are names that other software uses too. Only the
processes of Sluice put `lib` on their own path, first: so neither hides the other.
"""
