"""Sluice as installed from a wheel. Its packages are in the folder `lib`, which is not on Python's
import path.

`policies`, `sidecar`, `control_api` and `deploy` are names that other software uses too. Only
Sluice's own processes put `lib` on their import path, in first place, so that neither hides the
other's packages.
"""
